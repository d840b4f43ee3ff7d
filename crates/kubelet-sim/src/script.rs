//! What scenarios do to the world and see of it.
//!
//! Verbs for tests that lay down a course of events by hand. Owns nothing; acts
//! on the driver's world.

use std::collections::BTreeMap;
use std::time::Duration;

use cri::RuntimeEventKind;
use kubelet::pod_workers::{Kill, KillWatch};
use kubelet_model::PodUid;

use crate::faults::Faults;
use crate::manifest::PodTemplate;
use crate::runtime::{Container, Twist};
use crate::sim::{NODE, SimWorld};

/// A running container, for scenarios.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveContainer {
    /// The runtime's id.
    pub id: String,
    /// Container name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// Revision of the manifest behind its sandbox.
    pub revision: u64,
    /// Restart count.
    pub attempt: u32,
}

impl SimWorld {
    /// Writes a manifest file; returns the template with its revision.
    pub fn put(&mut self, file: &str, template: &PodTemplate) -> PodTemplate {
        let _guard = self.rt.enter();
        self.world.lock().publish_file(&self.publishing, file, template)
    }

    /// Deletes a manifest file.
    pub fn delete(&mut self, file: &str) {
        let _guard = self.rt.enter();
        self.world.lock().delete_manifest(&self.publishing, file);
    }

    /// Overwrites a manifest file with something that is no pod.
    pub fn spoil(&mut self, file: &str) {
        let _guard = self.rt.enter();
        self.world.lock().spoil_file(&self.publishing, file, b"kind: [this is no pod");
    }

    /// Replaces what the URL serves.
    pub fn serve(&mut self, templates: &[PodTemplate]) -> Vec<PodTemplate> {
        let _guard = self.rt.enter();
        self.world.lock().publish_url(templates)
    }

    /// Writes the ConfigMap that pods mount, or removes it.
    pub fn put_config(&mut self, version: Option<u64>) {
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        match version {
            Some(version) => state.publish_config(&self.publishing, version),
            None => state.delete_config(&self.publishing),
        }
    }

    /// Writes the claim that pods share, and the volume it names.
    pub fn put_storage(&mut self) {
        let _guard = self.rt.enter();
        self.world.lock().publish_storage(&self.publishing);
    }

    /// Writes the claims of disks, and the volumes they name.
    pub fn put_disks(&mut self) {
        let _guard = self.rt.enter();
        self.world.lock().publish_disks(&self.publishing);
    }

    /// A CSI driver registers, or goes.
    pub fn set_driver(&mut self, there: bool) {
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        match there {
            true => state.bring_driver(),
            false => state.take_driver(),
        }
    }

    /// From now on probes of this port fail, or succeed again.
    pub fn set_port_well(&mut self, port: u16, well: bool) {
        let unwell = &mut self.world.lock().endpoints.unwell;
        if well {
            unwell.remove(&port);
        } else {
            unwell.insert(port);
        }
    }

    /// Twists the next call of this name that has no twist yet.
    pub fn twist(&mut self, call: &'static str, twist: Twist) {
        self.world.lock().script.push_back((call, twist));
    }

    /// Changes the faults in force, without random mischief.
    pub fn with_faults(&mut self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.world.lock().faults);
    }

    /// Moves the wall clock.
    pub fn jump_wall(&mut self, by: jiff::SignedDuration) {
        let _guard = self.rt.enter();
        self.world.lock().jump_wall(by);
    }

    /// Ends every event stream.
    pub fn break_event_streams(&mut self) {
        self.world.lock().break_streams();
    }

    /// Kills a running container from outside.
    pub fn kill(&mut self, id: &str) {
        let _guard = self.rt.enter();
        self.world.lock().end(id, 137, "Error");
    }

    /// Has the agent end a pod for the node's sake.
    pub fn end_pod(&mut self, name: &str, kill: Kill) -> KillWatch {
        let pod = format!("{name}-{NODE}");
        let uid = self.reported().into_iter().find(|reported| reported.name == pod);
        let uid = uid.map(|reported| reported.uid).unwrap_or_default();
        let killer = self.agent.as_ref().expect("an agent runs").killer();
        {
            let _guard = self.rt.enter();
            self.world.lock().note_kill(&pod, &uid, &kill);
        }
        self.rt.block_on(killer.kill(&PodUid::new(uid), kill))
    }

    /// The machine is about to go, or is not after all.
    pub fn shut_down(&mut self, goes: bool) {
        let pods = self.reported();
        let _guard = self.rt.enter();
        let mut state = self.world.lock();
        for pod in pods.iter().filter(|_| goes) {
            let kill = Kill {
                reason: "Terminated".to_owned(),
                message: String::new(),
                grace: None,
                disruption: None,
                evict: false,
            };
            state.note_kill(&pod.name, &pod.uid, &kill);
        }
        let listens = state.shutdowns.signals.as_ref().expect("somebody listens");
        listens.send(goes).expect("somebody listens");
    }

    /// How many hold a shutdown up.
    pub fn shutdown_locks(&self) -> usize {
        self.world.lock().shutdowns.locks
    }

    /// Kills a pod's sandboxes from outside; containers run on.
    pub fn kill_sandbox(&mut self, name: &str) {
        let _guard = self.rt.enter();
        for (id, _) in self.sandboxes_of(name) {
            self.world.lock().unready_sandbox(&id, "killed from outside");
        }
    }

    /// The same, by a runtime that tells of it at once and records it after a while.
    pub fn kill_sandbox_recorded_after(&mut self, name: &str, lag: Duration) {
        let dying = self.sandboxes_of(name);
        for (id, uid) in &dying {
            let _guard = self.rt.enter();
            self.world.lock().announce(id, uid, RuntimeEventKind::Stopped);
        }
        self.run_for(lag);
        for (id, _) in dying {
            let _guard = self.rt.enter();
            self.world.lock().record_dead_sandbox(&id, "killed from outside");
        }
    }

    /// Ids of a pod's sandboxes, and whose they are.
    fn sandboxes_of(&self, name: &str) -> Vec<(String, String)> {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        let own = state.objects.sandboxes.values().filter(|sandbox| sandbox.pod() == pod);
        own.map(|sandbox| (sandbox.id.clone(), sandbox.uid().to_owned())).collect()
    }

    /// Running containers of a pod, by its manifest name.
    pub fn running(&self, name: &str) -> Vec<LiveContainer> {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        let all = state.objects.containers.values();
        all.filter(|c| c.is_running() && c.pod() == pod)
            .map(|c| LiveContainer {
                id: c.id.clone(),
                name: c.name().to_owned(),
                uid: c.uid().to_owned(),
                revision: state.objects.sandboxes.get(&c.sandbox).map_or(0, |s| s.revision()),
                attempt: c.attempt(),
            })
            .collect()
    }

    /// `path image sub-path` of every image mounted into running containers of a pod.
    pub fn image_mounts(&self, name: &str) -> Vec<String> {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        let all = state.objects.containers.values().filter(|c| c.is_running() && c.pod() == pod);
        let mounts = all.flat_map(|c| &c.config.mounts);
        mounts
            .filter_map(|mount| {
                let image = &mount.image.as_ref()?.image;
                Some(format!("{} {image} {}", mount.container_path, mount.image_sub_path))
            })
            .collect()
    }

    /// Brings an image to the node.
    pub fn add_image(&mut self, image: &str) {
        self.world.lock().objects.images.insert(image.to_owned());
    }

    /// How often the agent made a call of this name.
    pub fn calls(&self, name: &'static str) -> u64 {
        self.world.lock().history.calls_of(name)
    }

    /// Why the containers of a pod wait, as their statuses tell.
    pub fn waiting(&self, name: &str) -> Vec<String> {
        let pod = format!("{name}-{NODE}");
        let reported = self.reported().into_iter().filter(|reported| reported.name == pod);
        reported.flat_map(|pod| pod.containers).filter_map(|c| c.waiting).collect()
    }

    /// Memory limits of a pod's running containers and of its group, in mebibytes.
    pub fn memory_limits(&self, name: &str) -> (Vec<i64>, Option<i64>) {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        let running =
            state.objects.containers.values().filter(|c| c.is_running() && c.pod() == pod);
        let limit = |c: &Container| {
            let resources = c.config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
            resources.map_or(0, |resources| resources.memory_limit_in_bytes >> 20)
        };
        let uid = running.clone().map(|c| c.uid().to_owned()).next().unwrap_or_default();
        let mut groups = state.groups.pods.iter();
        let group = groups.find(|(known, _)| known.as_str() == uid);
        let of_group = group.and_then(|(_, (_, limits))| limits.memory_bytes).map(|b| b >> 20);
        (running.map(limit).collect(), of_group)
    }

    /// Number of sandboxes of a pod, by its manifest name.
    pub fn sandboxes(&self, name: &str) -> usize {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        state.objects.sandboxes.values().filter(|s| s.pod() == pod).count()
    }

    /// The next work of this name on a volume takes so long, and goes on in the kernel
    /// though the agent dies.
    pub fn hang_next(&mut self, work: &'static str, time: Duration) {
        let mut state = self.world.lock();
        state.faults.outlives = 1.0;
        state.volumes.hangs.push((work, time));
    }

    /// Calls of the agent for its volumes and to its driver so far: what was asked for, at
    /// which place, and how often.
    pub fn volume_calls(&self) -> BTreeMap<String, u64> {
        self.world.lock().volumes.calls.clone()
    }

    /// Number of disks of other machines that are attached.
    pub fn attached_disks(&self) -> usize {
        self.world.lock().volumes.attached.len()
    }

    /// Number of mounts of volumes and parts of them.
    pub fn mounts(&self) -> usize {
        self.world.lock().volumes.mounts.len()
    }

    /// Lets time pass until `done`; fails after `limit`.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> &mut Self {
        let end = self.instant() + limit;
        while !done(self) {
            let in_time = self.instant() < end;
            self.expect(in_time, &format!("waited {}s in vain for: {what}", limit.as_secs()));
            self.run_for(Duration::from_millis(100));
        }
        self
    }
}
