//! The driver: one seed's world, the agent in it, and virtual time.
//!
//! Owns the tokio runtime, the agent's lives and the pending mischief. Panics
//! with one line that replays the seed when a rule is broken.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet::settings::Settings;
use rand::RngExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep_until};

use crate::agent::{RunningAgent, stored_pod};
use crate::api::ApiServer;
use crate::chaos::{Publishing, Step};
use crate::checkers::{self, Layout, ReportedPod};
use crate::faults::Faults;
use crate::node::MANIFESTS;
use crate::panics;
use crate::volume_template::HOST_GIVEN;
use crate::world::{Life, Violation, World};

/// A stop that was asked for in the time of faults may hang for its grace and two
/// minutes before its pod goes on, and what failed by that is tried again after a while.
const HUNG_CALL_LIMIT: Duration = Duration::from_secs(240);
/// Everything must settle within this time once faults stop.
const SETTLE_LIMIT: Duration = Duration::from_secs(30 * 60);
/// How often the driver looks whether all is settled.
const LOOK: Duration = Duration::from_secs(2);
/// How often, and how many times, readiness is looked at after a restart.
const FLAP_LOOK: Duration = Duration::from_millis(200);
const FLAP_LOOKS: u32 = 50;
/// Lines of trace shown with a failure.
const TAIL: usize = 60;

/// Name of every simulated node.
pub(crate) const NODE: &str = "node";
const URL: &str = "http://manifests.test/pods";

/// One seed's simulation.
pub struct SimWorld {
    seed: u64,
    pub(crate) rt: Runtime,
    pub(crate) world: Arc<World>,
    settings: Settings,
    pub(crate) publishing: Publishing,
    pub(crate) agent: Option<RunningAgent>,
    lives: u64,
    churn_left: u32,
    mischief: bool,
    /// A course laid down by a test, rather than drawn from the seed.
    is_scenario: bool,
    agenda: Vec<(Instant, Due)>,
}

enum Due {
    Mischief,
    StartAgent,
    RuntimeUp,
    CompleteFile(usize),
}

impl SimWorld {
    /// A well-behaved world; the agent is not started yet.
    pub fn new(seed: u64) -> Self {
        panics::watch();
        let rt = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a current-thread runtime needs no resources that can run out");
        let echo = crate::seeds::shows_trace();
        let world = {
            let _guard = rt.enter();
            World::new(seed, Faults::none(), echo)
        };
        let mut settings = Settings::for_node(NODE);
        settings.static_pod_path = Some(MANIFESTS.into());
        settings.static_pod_url = Some(URL.to_owned());
        // A short ceiling lets crash loops settle in little virtual time.
        settings.max_restart_period = Duration::from_secs(40);
        let publishing = Publishing { dir: PathBuf::from(MANIFESTS) };
        let mut sim = Self {
            seed,
            rt,
            world,
            settings,
            publishing,
            agent: None,
            lives: 0,
            churn_left: 0,
            mischief: false,
            is_scenario: true,
            agenda: Vec::new(),
        };
        sim.furnish();
        sim
    }

    /// Directories and files that every node has.
    fn furnish(&mut self) {
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        let now_ns = state.wall_ns();
        let dirs = [
            self.publishing.dir.as_path(),
            &self.settings.root_dir,
            &self.settings.pod_logs_dir,
            &self.settings.container_log_links_dir,
            Path::new("/etc"),
            Path::new(HOST_GIVEN),
        ];
        for dir in dirs {
            state.files.make_dir(dir, now_ns);
        }
        state.write_file(Path::new("/etc/resolv.conf"), b"nameserver 10.0.0.2\n".to_vec());
        state.write_file(Path::new("/etc/hosts"), b"127.0.0.1 localhost\n".to_vec());
        state.furnish_disks();
        state.publish_url(&[]);
    }

    /// Lets manifests change at most `times` times.
    pub fn churn(mut self, times: u32) -> Self {
        self.churn_left = times;
        self.mischief = true;
        self
    }

    /// Turns faults on.
    pub fn faults(mut self, faults: Faults) -> Self {
        {
            let _guard = self.rt.enter();
            let mut state = self.world.lock();
            state.note("", format!("{faults:?}"));
            state.faults = faults;
            if state.faults.foreign {
                state.add_foreign_objects();
            }
        }
        self.is_scenario = false;
        self.mischief = true;
        self
    }

    /// The same node in a cluster: its pods come from an API server.
    pub fn in_cluster(mut self) -> Self {
        self.settings.static_pod_url = None;
        self.settings.node_ips = vec!["10.0.0.1".to_owned()];
        // No controller runs here that could attach volumes.
        self.settings.controller_attaches = false;
        {
            let _guard = self.rt.enter();
            self.world.lock().api = Some(ApiServer::new(self.seed));
        }
        self
    }

    /// The same node without the URL source.
    pub fn without_url(mut self) -> Self {
        self.settings.static_pod_url = None;
        self
    }

    /// Changes the agent's settings for its next start.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Starts the agent if it is down.
    pub fn start_agent(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.lives += 1;
        let _guard = self.rt.enter();
        let life = Life::new(self.lives);
        {
            let mut state = self.world.lock();
            state.crash_wanted = false;
            state.history.life = self.lives;
            if let Some(server) = &mut state.api {
                server.record.excuse_all();
            }
            let now = state.now();
            state.oracle.begin_life(now);
            state.note("", format!("agent starts, life {}", self.lives));
        }
        let settings = self.settings.clone();
        self.agent = Some(RunningAgent::start(&self.world, settings, life, self.seed));
    }

    /// Crashes the agent; it stays down until started.
    pub fn crash_agent(&mut self) {
        let _guard = self.rt.enter();
        if let Some(agent) = self.agent.take() {
            self.world.lock().note("", "agent is down".to_owned());
            agent.crash();
        }
    }

    /// Lets `time` pass, with mischief if it is on.
    pub fn run_for(&mut self, time: Duration) -> &mut Self {
        let end = self.instant() + time;
        if self.mischief && !self.agenda.iter().any(|(_, due)| matches!(due, Due::Mischief)) {
            let at = self.instant();
            self.agenda.push((at, Due::Mischief));
        }
        loop {
            let next = self.next_due().filter(|at| *at < end).unwrap_or(end);
            let rung = {
                let bell = Arc::clone(&self.world.bell);
                self.rt.block_on(async move {
                    tokio::select! {
                        biased;
                        () = bell.notified() => true,
                        () = sleep_until(next) => false,
                    }
                })
            };
            self.fail_on_violation();
            if rung {
                self.after_crash();
            } else if next == end {
                return self;
            } else {
                self.do_due(next);
            }
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        let _guard = self.rt.enter();
        Instant::now()
    }

    fn next_due(&self) -> Option<Instant> {
        self.agenda.iter().map(|(at, _)| *at).min()
    }

    fn after_crash(&mut self) {
        if !std::mem::take(&mut self.world.lock().crash_wanted) {
            return;
        }
        self.crash_agent();
        let down = Duration::from_millis(self.world.lock().rng.random_range(0..20_000));
        let at = self.instant() + down;
        self.agenda.push((at, Due::StartAgent));
    }

    fn do_due(&mut self, now: Instant) {
        let mut due = Vec::new();
        self.agenda.retain_mut(|(at, what)| {
            let is_due = *at <= now;
            if is_due {
                due.push(std::mem::replace(what, Due::RuntimeUp));
            }
            !is_due
        });
        for what in due {
            match what {
                Due::StartAgent => self.start_agent(),
                Due::RuntimeUp => self.set_runtime_down(false),
                Due::CompleteFile(index) => {
                    let _guard = self.rt.enter();
                    self.world.lock().complete_file(&self.publishing, index);
                }
                Due::Mischief => self.do_mischief(now),
            }
        }
    }

    fn do_mischief(&mut self, now: Instant) {
        if !self.mischief {
            return;
        }
        let (step, pause) = {
            let _guard = self.rt.enter();
            let mut state = self.world.lock();
            let step = state.mischief(&self.publishing, self.churn_left > 0);
            let pause = Duration::from_millis(state.rng.random_range(0..8_000));
            (step, pause)
        };
        self.churn_left = self.churn_left.saturating_sub(1);
        self.agenda.push((now + pause, Due::Mischief));
        match step {
            Step::Done => {}
            Step::Crash(down) => {
                self.crash_agent();
                self.agenda.push((now + down, Due::StartAgent));
            }
            Step::RuntimeDown(down) => {
                self.set_runtime_down(true);
                self.agenda.push((now + down, Due::RuntimeUp));
            }
            Step::CompleteFile(index, wait) => {
                self.agenda.push((now + wait, Due::CompleteFile(index)));
            }
        }
    }

    /// Takes the runtime's socket down or up; its containers run on.
    pub fn set_runtime_down(&mut self, down: bool) {
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        state.runtime_down = down;
        state.note("", format!("runtime down: {down}"));
        if down {
            state.break_streams();
        }
    }

    /// Stops all faults and churn and repairs what they broke.
    pub fn heal(&mut self) -> &mut Self {
        self.mischief = false;
        self.agenda.clear();
        self.set_runtime_down(false);
        {
            let _guard = self.rt.enter();
            let mut state = self.world.lock();
            state.note("", "heal".to_owned());
            state.faults = state.faults.healed();
            state.bring_api();
            state.unmount_all_foreign();
            state.repair_manifests(&self.publishing);
        }
        self.start_agent();
        self
    }

    /// Runs until every checker agrees, twice; panics if that takes too long.
    pub fn run_until_idle(&mut self) -> &mut Self {
        self.settle(SETTLE_LIMIT);
        // What looks settled must stay so: nothing may be about to fall over.
        self.run_for(Duration::from_secs(20));
        self.settle(HUNG_CALL_LIMIT);
        self
    }

    /// Restarts the agent in a settled world: what was ready and stays well must
    /// not seem unready for a moment.
    pub fn expect_no_flap(&mut self) -> &mut Self {
        let before = self.ready_for_long();
        self.crash_agent();
        self.start_agent();
        for _ in 0..FLAP_LOOKS {
            self.run_for(FLAP_LOOK);
            let still = self.ready_for_long_by_nature();
            for pod in self.reported() {
                let flapped = pod.containers.into_iter().find(|c| {
                    let id = c.id.clone().unwrap_or_default();
                    c.running && !c.ready && before.contains(&id) && still.contains(&id)
                });
                if let Some(c) = flapped {
                    let text = format!("{} was ready before the agent restarted", c.name);
                    self.fail(&Violation { pod: pod.name, text });
                }
            }
        }
        self
    }

    /// Ids of containers that are reported ready and have long been well.
    fn ready_for_long(&self) -> BTreeSet<String> {
        let by_nature = self.ready_for_long_by_nature();
        let reported = self.reported().into_iter().flat_map(|pod| pod.containers);
        let ready = reported.filter(|c| c.ready && c.running).filter_map(|c| c.id);
        ready.filter(|id| by_nature.contains(id)).collect()
    }

    fn ready_for_long_by_nature(&self) -> BTreeSet<String> {
        let _guard = self.rt.enter();
        let state = self.world.lock();
        let long_well = state.objects.containers.values().filter(|c| state.is_long_well(c));
        long_well.map(|c| c.id.clone()).collect()
    }

    /// Runs until every checker agrees, for at most `limit`.
    pub fn settle(&mut self, limit: Duration) -> &mut Self {
        let end = self.instant() + limit;
        let mut noted = String::new();
        loop {
            let Some(wrong) = self.unsettled() else {
                return self;
            };
            if wrong.text != noted {
                let _guard = self.rt.enter();
                self.world.lock().note(&wrong.pod, format!("not settled: {}", wrong.text));
                noted.clone_from(&wrong.text);
            }
            if self.instant() >= end {
                let text = format!("not settled after {}s: {}", limit.as_secs(), wrong.text);
                self.fail(&Violation { text, ..wrong });
            }
            self.run_for(LOOK);
        }
    }

    /// The first disagreement between manifests, runtime and reports.
    pub fn unsettled(&self) -> Option<Violation> {
        let _guard = self.rt.enter();
        let reported = self.reported();
        let layout = Layout {
            node: NODE,
            logs_dir: &self.settings.pod_logs_dir,
            links_dir: &self.settings.container_log_links_dir,
            backoff_max: self.settings.max_restart_period,
        };
        let state = self.world.lock();
        let wrong = checkers::unsettled(&state, &reported, layout);
        wrong.or_else(|| {
            // What the server holds is what the node reports.
            let stored = state.api.as_ref()?.pods();
            let stored: Vec<ReportedPod> = stored.iter().map(stored_pod).collect();
            let wrong = checkers::unsettled(&state, &stored, layout)?;
            Some(Violation { text: format!("at the server: {}", wrong.text), ..wrong })
        })
    }

    /// What the agent reports; nothing while it is down.
    pub fn reported(&self) -> Vec<ReportedPod> {
        self.agent.as_ref().map(RunningAgent::reported).unwrap_or_default()
    }

    fn fail_on_violation(&self) {
        let violation = self.world.lock().violation.clone();
        if let Some(violation) = violation {
            self.fail(&violation);
        }
        if let Some(text) = panics::take() {
            let pod = String::new();
            self.fail(&Violation { pod, text: format!("the agent panicked: {text}") });
        }
    }

    fn fail(&self, violation: &Violation) -> ! {
        let state = self.world.lock();
        let about = (!violation.pod.is_empty()).then_some(violation.pod.as_str());
        let tail = state.trace.tail(about, TAIL);
        drop(state);
        let pod = if violation.pod.is_empty() { "node" } else { &violation.pod };
        panic!("seed {}: {pod}: {}\n{tail}\n{}", self.seed, violation.text, self.replay_line());
    }

    fn replay_line(&self) -> String {
        if self.is_scenario {
            // The test harness names threads after tests.
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            return format!(
                "replay: KLET_SIM_TRACE=1 cargo test -p kubelet-sim {test} -- --nocapture"
            );
        }
        match self.world.lock().api.is_some() {
            true => crate::seeds::cluster_replay_line(self.seed),
            false => crate::seeds::replay_line(self.seed),
        }
    }

    /// Panics as for a broken rule, with trace and replay line.
    pub fn expect(&self, holds: bool, rule: &str) {
        if !holds {
            let pod = String::new();
            self.fail(&Violation { pod, text: rule.to_owned() });
        }
    }

    /// Digest and length of everything that happened.
    pub fn digest(&self) -> (u64, u64) {
        let state = self.world.lock();
        (state.trace.digest(), state.trace.count())
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        let _guard = self.rt.enter();
        self.world.now()
    }
}
