//! Keeps the files as the pods are: plans anew on every change, writes what differs.
//!
//! The only writer of kept pods. Rests a moment after a change, so that what comes
//! together is written once; idle, it writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_model::{DesiredPod, EventObject, EventType, PodUid};
use tokio::time::{Instant, sleep, sleep_until};

use super::format::{Encoded, KeptPod, encode};
use super::needs;
use super::plan::{LIMITS, Now, Refusal, plan};
use super::store::Store;
use crate::cluster_lists::ClusterLists;
use crate::events::Recorder;
use crate::object_cache::{Kept, KeptNode, Objects};
use crate::pod_manager::ApiCopies;
use crate::pod_sources::PodSetReader;
use crate::settings::Settings;
use crate::status_manager::Statuses;
use crate::volume_manager::attach::Attachments;

/// How long changes are gathered.
const REST: Duration = Duration::from_secs(1);
/// How soon what could not be written or removed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The files of kept pods, and what pods' needs depend on.
pub struct Files {
    pub(super) store: Store,
    pub(super) settings: Arc<Settings>,
}

/// Keeps pods.
pub struct Keeper {
    /// Where.
    pub files: Files,
    /// What should run here.
    pub desired: PodSetReader,
    /// What pods use.
    pub objects: Objects,
    /// Services and RuntimeClasses.
    pub lists: ClusterLists,
    /// How they are.
    pub statuses: Statuses,
    /// Whether the server has said which there are.
    pub copies: ApiCopies,
    /// Takes what is not kept.
    pub recorder: Recorder,
    /// What the cluster says of the node and its volumes.
    pub attachments: Attachments,
}

/// What is remembered from look to look.
#[derive(Default)]
pub(super) struct Memory {
    compared: BTreeMap<PodUid, Compared>,
    /// Pods of which was told that they are not kept.
    told: BTreeMap<PodUid, Refusal>,
    /// The desired pods are those that the server has listed.
    pub(super) listed: bool,
}

/// What a pod was made of when its file was last compared.
struct Compared {
    pod: Arc<Pod>,
    own: Option<Arc<PodStatus>>,
    objects: Kept,
    /// Of services, and of its RuntimeClass. Alone they are no reason to write: its
    /// containers have those of the time when they were started.
    variables: Vec<(String, String)>,
    handler: Option<String>,
    /// What its volumes need to know of the node.
    node: KeptNode,
    /// Bytes that its file lacks, because there is no room for it or it could not be
    /// written.
    lacking: Option<usize>,
}

impl Compared {
    /// A look at the pointers: nobody changes what they lead to.
    fn is(&self, other: &Self) -> bool {
        let mut objects = self.objects.values().zip(other.objects.values());
        Arc::ptr_eq(&self.pod, &other.pod)
            && is_same(&self.own, &other.own)
            && self.node == other.node
            && self.objects.keys().eq(other.objects.keys())
            && objects.all(|(a, b)| is_same(a, b))
    }
}

fn is_same<T>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

impl Keeper {
    /// Works until it is dropped.
    pub async fn run(mut self) {
        let (mut statuses, mut copies) = (self.statuses.follow(), self.copies.follow());
        let (mut news, mut node) = (self.objects.news(), self.attachments.follow());
        let mut memory = Memory::default();
        loop {
            statuses.borrow_and_update();
            copies.borrow_and_update();
            news.borrow_and_update();
            node.borrow_and_update();
            // What the server has listed reaches the desired pods a little later: only
            // those that were listed at the last look already are all there are.
            let (listed, known) = (memory.listed, self.copies.is_known());
            let done = self.look(&mut memory).await;
            memory.listed = known;
            let pause = if known && !listed { Some(Duration::ZERO) } else { None };
            let retry = pause.or((!done).then_some(RETRY)).map(|pause| Instant::now() + pause);
            let unread = !self.lists.are_read();
            tokio::select! { biased;
                () = self.desired.changed() => {}
                () = self.lists.read(), if unread => {}
                changed = statuses.changed() => if changed.is_err() { return },
                changed = copies.changed() => if changed.is_err() { return },
                changed = news.changed() => if changed.is_err() { return },
                changed = node.changed() => if changed.is_err() { return },
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {}
            }
            sleep(REST).await;
        }
    }

    /// Makes the files what they should be; returns whether they are.
    pub(super) async fn look(&mut self, memory: &mut Memory) -> bool {
        let Memory { compared, told, listed } = memory;
        let desired = self.desired.current();
        let (mut now, mut encoded) = (BTreeMap::new(), BTreeMap::new());
        for pod in desired.pods.values().filter(|pod| !pod.is_static()) {
            let uid = pod.uid();
            let Some(mut parts) = self.made_of(pod) else {
                now.insert(uid.clone(), Now::Unsure);
                continue;
            };
            if let Some(old) = compared.get(uid).filter(|old| old.is(&parts)) {
                now.insert(uid.clone(), old.lacking.map_or(Now::Same, Now::New));
                continue;
            }
            let file = written(&parts);
            if !self.files.store.holds(uid, &file.digest) {
                parts.lacking = Some(file.bytes.len());
                encoded.insert(uid.clone(), file);
            }
            now.insert(uid.clone(), parts.lacking.map_or(Now::Same, Now::New));
            compared.insert(uid.clone(), parts);
        }
        compared.retain(|uid, _| now.contains_key(uid));
        let plan = plan(&self.files.store.sizes(), &now, *listed, LIMITS);
        let mut done = true;
        for uid in &plan.remove {
            if let Err(error) = self.files.store.remove(uid) {
                tracing::error!(pod = %uid, %error, "kept pod not removed; trying again");
                done = false;
            }
        }
        for uid in &plan.write {
            let Some(parts) = compared.get_mut(uid) else { continue };
            // One that lacked room before is made once more.
            let file = encoded.remove(uid).unwrap_or_else(|| written(parts));
            match self.files.store.write(uid, file).await {
                Ok(()) => parts.lacking = None,
                Err(error) => {
                    tracing::error!(pod = %uid, %error, "pod not kept on disk; trying again");
                    done = false;
                }
            }
        }
        self.tell(&desired.pods, &plan.refused, told);
        done
    }

    /// The pod and its objects, once the server has answered for all of them.
    fn made_of(&self, pod: &DesiredPod) -> Option<Compared> {
        let own = self.statuses.get(pod.uid());
        let mut parts = Compared {
            pod: Arc::clone(pod.asked()),
            objects: Kept::new(),
            variables: Vec::new(),
            handler: None,
            node: KeptNode::default(),
            lacking: None,
            own: own.clone(),
        };
        if needs::may_start(pod.asked(), own.as_deref()) {
            let settings = &self.files.settings;
            let get = |key: &_| self.objects.told(key).flatten();
            let view = self.attachments.view();
            let keys: BTreeSet<_> = needs::keys(pod, settings, &get, &view);
            for key in keys.into_iter().filter(needs::is_kept) {
                let object = self.objects.told(&key)?;
                parts.objects.insert(key, object);
            }
            parts.node = needs::of_node(pod, settings, &get, &view)?;
            parts.variables = self.lists.known_variables(pod)?;
            if let class @ Some(_) = &pod.spec().runtime_class_name {
                parts.handler = Some(self.lists.known_handler(class.as_deref()?)?);
            }
        }
        Some(parts)
    }

    /// Says once of each pod that it is not kept.
    fn tell(
        &self,
        pods: &BTreeMap<PodUid, DesiredPod>,
        refused: &BTreeMap<PodUid, Refusal>,
        told: &mut BTreeMap<PodUid, Refusal>,
    ) {
        told.retain(|uid, _| refused.contains_key(uid));
        for (uid, why) in refused {
            let (Some(pod), None) = (pods.get(uid), told.insert(uid.clone(), *why)) else {
                continue;
            };
            let why = match why {
                Refusal::TooLarge(bytes) => format!(
                    "with its objects it has {bytes} bytes, and {} are kept of a pod",
                    LIMITS.file_bytes
                ),
                Refusal::Full => format!(
                    "{} pods or {} bytes are kept on a node",
                    LIMITS.files, LIMITS.all_bytes
                ),
            };
            let (name, namespace) = (pod.name(), pod.namespace());
            tracing::warn!(pod = name, namespace, %uid, why, "pod not kept on disk");
            let text = format!(
                "After a reboot without an API server this pod does not start: it is not kept on \
                 the node, because {why}"
            );
            self.recorder.record(&EventObject::pod(pod), EventType::Warning, "NotKept", text);
        }
    }
}

fn written(parts: &Compared) -> Encoded {
    let pod = Arc::new(needs::stripped(&parts.pod, parts.own.as_deref()));
    let (objects, variables) = (parts.objects.clone(), parts.variables.clone());
    let (handler, node) = (parts.handler.clone(), parts.node.clone());
    encode(&KeptPod { pod, objects, variables, handler, node })
}
