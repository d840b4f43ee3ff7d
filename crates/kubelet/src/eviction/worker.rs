//! Measures pods that have limits, and ends those that exceed them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use kubelet_model::{DesiredPod, EventObject, EventType, Grace, PodUid};
use node_stats::{PodSample, Stats, StatsError};
use tokio::time::{Instant, sleep, timeout};

use super::plan::{StorageLimits, Verdict};
use super::{EvictionMetrics, REASON};
use crate::events::Recorder;
use crate::pod_sources::PodSetReader;
use crate::pod_usage::{PodUsage, Unmeasured};
use crate::pod_workers::{Kill, KillWatch, PodKiller};
use crate::status_manager::is_terminal;
use crate::volume_manager::inventory::VolumeFacts;

/// How often pods are measured.
const PERIOD: Duration = Duration::from_secs(10);
/// Large volumes take long to measure: they are measured less often, so that no more
/// than a tenth of the time goes into it, but at least this often.
const REST_PER_WORK: u32 = 10;
const PERIOD_MAX: Duration = Duration::from_secs(60);
/// How long one volume may take to measure.
const VOLUME_LIMIT: Duration = Duration::from_secs(60);
/// How long the next look waits for what evicted pods leave behind.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(30);
/// Upstream's grace of an eviction that cannot wait.
const GRACE_SECONDS: i64 = 1;

/// Watches what pods put on the node's disks.
pub(super) struct StorageWatch {
    desired: PodSetReader,
    usage: PodUsage,
    stats: Stats,
    killer: PodKiller,
    recorder: Recorder,
    metrics: EvictionMetrics,
    /// The runtime has a disk of its own; `None` until that is known.
    own_image_fs: Option<bool>,
    /// Critical pods that exceed a limit, and what was said of them.
    told: BTreeMap<PodUid, String>,
    /// Pods that were told to end: once is enough.
    evicted: BTreeSet<PodUid>,
    /// What was last said to be in the way.
    problem: Option<String>,
    /// Volumes that could not be measured, and why, as was said.
    unmeasured: BTreeMap<(PodUid, String), String>,
}

/// The pods that have limits and have not ended.
type Watched = BTreeMap<PodUid, (DesiredPod, StorageLimits)>;

impl StorageWatch {
    pub(super) fn new(
        desired: PodSetReader,
        usage: PodUsage,
        stats: Stats,
        killer: PodKiller,
        recorder: Recorder,
        metrics: EvictionMetrics,
    ) -> Self {
        Self {
            desired,
            usage,
            stats,
            killer,
            recorder,
            metrics,
            own_image_fs: None,
            told: BTreeMap::new(),
            evicted: BTreeSet::new(),
            problem: None,
            unmeasured: BTreeMap::new(),
        }
    }

    /// Works until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let watched = self.watched();
            self.told.retain(|uid, _| watched.contains_key(uid));
            let desired = self.desired.current();
            self.evicted.retain(|uid| desired.pods.contains_key(uid));
            if watched.is_empty() {
                self.desired.changed().await;
                continue;
            }
            let began = Instant::now();
            let evicted = self.look(&watched).await;
            if evicted.is_empty() {
                let rest = began.elapsed().saturating_mul(REST_PER_WORK);
                sleep(rest.clamp(PERIOD, PERIOD_MAX)).await;
                continue;
            }
            let all = join_all(evicted.into_iter().map(|mut watch| async move {
                let _ = watch.cleaned_up().await;
            }));
            let _ = timeout(CLEAN_UP_LIMIT, all).await;
        }
    }

    fn watched(&self) -> Watched {
        let desired = self.desired.current();
        let limited = desired.pods.values().filter_map(|pod| {
            let limits = StorageLimits::of(pod.spec())?;
            let told = pod.asked().status.as_ref().is_some_and(is_terminal);
            let known = self.usage.statuses.get(pod.uid());
            let ended = told || known.is_some_and(|status| is_terminal(&status));
            let going = ended || self.evicted.contains(pod.uid());
            (!going).then(|| (pod.uid().clone(), (pod.clone(), limits)))
        });
        limited.collect()
    }

    /// One look at all of them; those that were ended.
    async fn look(&mut self, watched: &Watched) -> Vec<KillWatch> {
        let samples = match self.measure(watched).await {
            Ok(samples) => samples,
            Err(error) => {
                self.complain(Some(error.to_string()));
                return Vec::new();
            }
        };
        let mut condemned = Vec::new();
        for (uid, (pod, limits)) in watched {
            let sample = samples.iter().find(|sample| sample.uid == uid.as_str());
            let verdict = sample.and_then(|sample| limits.judge(sample, self.own_image_fs));
            match verdict {
                Some(verdict) if pod.is_critical() => self.tell(pod, verdict),
                Some(verdict) => {
                    self.evicted.insert(uid.clone());
                    condemned.push((pod, verdict));
                }
                None => drop(self.told.remove(uid)),
            }
        }
        let ended = condemned.into_iter().map(|(pod, verdict)| self.evict(pod, verdict));
        join_all(ended).await
    }

    async fn measure(&mut self, watched: &Watched) -> Result<Vec<PodSample>, StatsError> {
        let mut pods = self.usage.pods();
        pods.retain(|pod| watched.contains_key(&pod.uid));
        if pods.is_empty() {
            return Ok(Vec::new());
        }
        let layers = watched.values().any(|(_, limits)| limits.counts_layers());
        if layers && self.own_image_fs.is_none() {
            match self.stats.has_own_image_fs().await {
                Ok(own) => self.own_image_fs = Some(own),
                Err(error) => self.complain(Some(error.to_string())),
            }
        }
        // Those in memory have a limit, too.
        let of_interest = |of: &VolumeFacts| of.ephemeral || of.kind == "emptyDir";
        let unmeasured = self.usage.measure_volumes(&mut pods, VOLUME_LIMIT, of_interest).await;
        self.tell_unmeasured(watched, unmeasured);
        let samples = self.stats.storage(&pods, layers).await?;
        if !layers || self.own_image_fs.is_some() {
            self.complain(None);
        }
        Ok(samples)
    }

    async fn evict(&self, pod: &DesiredPod, verdict: Verdict) -> KillWatch {
        let Verdict { signal, message } = verdict;
        tracing::warn!(pod = %pod.full_name(), uid = %pod.uid(), signal, message, "pod evicted");
        let object = EventObject::pod(pod);
        self.recorder.record(&object, EventType::Warning, REASON, message.clone());
        self.metrics.count(signal);
        let kill = Kill {
            reason: REASON.to_owned(),
            message,
            grace: Some(Grace::from_secs(GRACE_SECONDS)),
            disruption: None,
            evict: true,
        };
        let (watch, dead) = self.killer.kill_and_wait(pod, kill).await;
        if let Err(error) = dead {
            tracing::warn!(%error, "an evicted pod has not ended yet");
        }
        watch
    }

    /// As upstream, a pod that the node cannot do without stays; that it exceeds its
    /// limit is told once.
    fn tell(&mut self, pod: &DesiredPod, verdict: Verdict) {
        let message = format!("{}The pod is critical and is not evicted.", verdict.message);
        if self.told.insert(pod.uid().clone(), message.clone()).is_none() {
            tracing::warn!(pod = %pod.full_name(), uid = %pod.uid(), message, "storage limit exceeded");
            let object = EventObject::pod(pod);
            self.recorder.record(&object, EventType::Warning, "StorageLimitExceeded", message);
        }
    }

    /// Says which volumes could not be measured, once per change of the cause: they count
    /// as nothing.
    fn tell_unmeasured(&mut self, watched: &Watched, unmeasured: Vec<Unmeasured>) {
        let mut now = BTreeMap::new();
        for Unmeasured { uid, volume, why } in unmeasured {
            let key = (uid, volume);
            if self.unmeasured.get(&key) != Some(&why)
                && let Some((pod, _)) = watched.get(&key.0)
            {
                let (pod, volume) = (pod.full_name(), &key.1);
                tracing::warn!(
                    pod = %pod, uid = %key.0, volume, error = why,
                    "cannot measure a volume; its limit is not enforced"
                );
            }
            now.insert(key, why);
        }
        self.unmeasured = now;
    }

    /// Says what is in the way, once per change of the cause.
    fn complain(&mut self, problem: Option<String>) {
        if let Some(error) = problem.as_ref().filter(|_| self.problem != problem) {
            tracing::warn!(error, "cannot measure what pods store; limits are not enforced");
        }
        self.problem = problem;
    }
}
