//! Mischief from outside the agent: churn of manifests, deaths, outages, jumps.
//!
//! Draws what happens next from the world's generator. Acts on the world only;
//! crashes of the agent are returned to the driver.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use rand::RngExt;
use serde_json::json;

use crate::manifest::PodTemplate;
use crate::oracle::Place;
use crate::world::State;

/// Manifest files that churn writes; file `i` usually holds pod `p<i>`.
const FILES: usize = 5;
/// Items that churn puts behind the URL.
const URL_ITEMS: usize = 2;

/// What the driver must do about a step of mischief.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing more.
    Done,
    /// Crash the agent and keep it down this long.
    Crash(Duration),
    /// Take the runtime down this long.
    RuntimeDown(Duration),
    /// Complete this file this much later.
    CompleteFile(usize, Duration),
}

/// Where manifests are published.
#[derive(Debug, Clone)]
pub(crate) struct Publishing {
    pub(crate) dir: PathBuf,
}

impl Publishing {
    fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }
}

fn file_name(index: usize) -> String {
    format!("m{index}.json")
}

impl State {
    /// Writes a manifest to a file.
    pub(crate) fn publish_file(
        &mut self,
        publishing: &Publishing,
        file: &str,
        template: &PodTemplate,
    ) -> PodTemplate {
        let now = self.now();
        let place = Place::File(file.to_owned());
        let template = self.oracle.publish(place, template, now);
        let text = template.to_text().into_bytes();
        self.write_file(&publishing.path(file), text);
        let pod = template.pod_name(crate::sim::NODE);
        self.note(&pod, format!("{file} = revision {}", template.revision));
        template
    }

    /// Deletes a manifest file.
    pub(crate) fn delete_manifest(&mut self, publishing: &Publishing, file: &str) {
        let now = self.now();
        self.oracle.withdraw(&Place::File(file.to_owned()), now);
        self.delete_file(&publishing.path(file));
        self.note("", format!("{file} deleted"));
    }

    /// Replaces a manifest file by something that is no pod.
    pub(crate) fn spoil_file(&mut self, publishing: &Publishing, file: &str, text: &[u8]) {
        let now = self.now();
        self.oracle.spoil(&Place::File(file.to_owned()), now);
        self.write_file(&publishing.path(file), text.to_vec());
        self.note("", format!("{file} spoilt"));
    }

    /// Replaces what the URL serves.
    pub(crate) fn publish_url(&mut self, templates: &[PodTemplate]) -> Vec<PodTemplate> {
        let now = self.now();
        for index in templates.len()..URL_ITEMS {
            self.oracle.withdraw(&Place::Url(index), now);
        }
        let published: Vec<PodTemplate> = templates
            .iter()
            .enumerate()
            .map(|(index, t)| self.oracle.publish(Place::Url(index), t, now))
            .collect();
        let items: Vec<_> = published.iter().map(PodTemplate::to_json).collect();
        let list = json!({"apiVersion": "v1", "kind": "PodList", "items": items});
        self.page.body = list.to_string().into_bytes();
        let revisions: Vec<u64> = published.iter().map(|t| t.revision).collect();
        self.note("", format!("URL = revisions {revisions:?}"));
        published
    }

    /// Makes every spoilt manifest good again, by repair or removal.
    pub(crate) fn repair_manifests(&mut self, publishing: &Publishing) {
        if self.faults.features.objects {
            let version = self.rng.random_range(1..1_000_000);
            self.publish_config(publishing, version);
        }
        if self.faults.features.csi {
            self.publish_storage(publishing);
            self.bring_driver();
        }
        if self.faults.features.disks {
            self.publish_disks(publishing);
        }
        for place in self.oracle.spoilt_places() {
            let Place::File(file) = &place else { continue };
            let last = self.oracle.last_good(&place).cloned();
            match last.filter(|_| self.rng.random_bool(0.5)) {
                Some(template) => {
                    self.publish_file(publishing, file, &template);
                }
                None => self.delete_manifest(publishing, file),
            }
        }
        for index in 0..=FILES {
            let file = file_name(index);
            if self.oracle.at(&Place::File(file.clone())).is_none() {
                self.delete_manifest(publishing, &file);
            }
        }
    }

    /// One random act. `churn` says whether manifests may still change.
    pub(crate) fn mischief(&mut self, publishing: &Publishing, churn: bool) -> Step {
        let faults = &self.faults;
        let weights = [
            if churn { faults.churn_weight } else { 0 },
            faults.crash_weight,
            faults.kill_container_weight,
            faults.kill_sandbox_weight,
            faults.runtime_down_weight,
            faults.stream_break_weight,
            faults.wall_jump_weight,
            faults.api.down_weight,
            faults.api.restart_weight,
            faults.api.restore_weight,
            faults.api.skew_weight,
            faults.api.login_weight,
            faults.foreign_mount_weight,
        ];
        let total: u32 = weights.iter().sum();
        if total == 0 {
            return Step::Done;
        }
        let mut draw = self.rng.random_range(0..total);
        let mut act = 0;
        while draw >= weights[act] {
            draw -= weights[act];
            act += 1;
        }
        match act {
            0 => return self.churn(publishing),
            1 => {
                let down = Duration::from_millis(self.rng.random_range(0..40_000));
                return Step::Crash(if self.rng.random_bool(0.5) { Duration::ZERO } else { down });
            }
            2 => self.kill_some_container(),
            3 => self.kill_some_sandbox(),
            4 => {
                let down = Duration::from_secs(self.rng.random_range(1..90));
                return Step::RuntimeDown(down);
            }
            5 => {
                self.note("", "event streams break".to_owned());
                self.break_streams();
            }
            12 => self.trouble_volumes(),
            7.. => self.trouble_api(act - 7),
            _ => {
                let by = SignedDuration::from_secs(self.rng.random_range(-10_000..10_000));
                self.jump_wall(by);
            }
        }
        Step::Done
    }

    fn churn(&mut self, publishing: &Publishing) -> Step {
        if self.api.is_some() {
            self.churn_api();
            return Step::Done;
        }
        if self.faults.features.objects && self.rng.random_bool(0.2) {
            self.churn_config(publishing);
            return Step::Done;
        }
        if self.faults.features.csi && self.rng.random_bool(0.2) {
            self.churn_storage(publishing);
            return Step::Done;
        }
        if self.faults.features.disks && self.rng.random_bool(0.1) {
            self.churn_disks(publishing);
            return Step::Done;
        }
        let index = self.rng.random_range(0..FILES);
        let file = file_name(index);
        let place = Place::File(file.clone());
        let present = self.oracle.at(&place).cloned();
        match (self.rng.random_range(0..12), present) {
            // Add, or edit in place.
            (0..4, None) => {
                let template = self.random_pod(index, "file");
                self.publish_file(publishing, &file, &template);
            }
            (0..3, Some(template)) => {
                let mut edited = template.edited(&mut self.rng, self.faults.features);
                edited.revision = 0;
                self.publish_file(publishing, &file, &edited);
            }
            // Delete; delete and recreate the same; replace by another of that name.
            (3..5, Some(_)) => self.delete_manifest(publishing, &file),
            (5..7, Some(template)) => {
                self.delete_manifest(publishing, &file);
                self.publish_file(publishing, &file, &template);
            }
            (7, Some(_)) => {
                let template = self.random_pod(index, "file");
                self.publish_file(publishing, &file, &template);
            }
            (8, _) => self.spoil_file(publishing, &file, b"kind: [this is no pod"),
            (9, _) => return self.half_write(publishing, index),
            (10, _) => self.duplicate_in_file(publishing, index),
            (11, _) => self.change_url(),
            _ => {}
        }
        Step::Done
    }

    fn random_pod(&mut self, index: usize, origin: &str) -> PodTemplate {
        let (name, features) = (format!("p{index}"), self.faults.features);
        if self.rng.random_bool(0.2) {
            let uid = format!("fixed-{origin}-{index}");
            return PodTemplate::random_fixed(&mut self.rng, &name, &uid, features);
        }
        PodTemplate::random(&mut self.rng, &name, None, features)
    }

    fn half_write(&mut self, publishing: &Publishing, index: usize) -> Step {
        let template = self.random_pod(index, "file");
        let text = template.to_text().into_bytes();
        self.spoil_file(publishing, &file_name(index), &text[..text.len() / 2]);
        let wait = Duration::from_millis(self.rng.random_range(1..4_000));
        Step::CompleteFile(index, wait)
    }

    /// Completes a half-written file, unless it is good again already.
    pub(crate) fn complete_file(&mut self, publishing: &Publishing, index: usize) {
        let file = file_name(index);
        if self.oracle.at(&Place::File(file.clone())).is_none() {
            let template = self.random_pod(index, "file");
            self.publish_file(publishing, &file, &template);
        }
    }

    /// Another file with a pod of the same name comes or goes.
    fn duplicate_in_file(&mut self, publishing: &Publishing, index: usize) {
        let file = file_name(FILES);
        if self.oracle.at(&Place::File(file.clone())).is_some() {
            self.delete_manifest(publishing, &file);
        } else {
            let mut template = self.random_pod(index, "file");
            template.fixed_uid = None;
            self.publish_file(publishing, &file, &template);
        }
    }

    fn change_url(&mut self) {
        let count = self.rng.random_range(0..=URL_ITEMS);
        let templates: Vec<PodTemplate> = (0..count)
            .map(|item| {
                if let Some(same) = self.oracle.at(&Place::Url(item)).cloned()
                    && self.rng.random_bool(0.5)
                {
                    return same;
                }
                // Half of them share their name with a file's pod; items of
                // one list never share a name.
                let names = [item, FILES + item];
                let index = names[self.rng.random_range(0..names.len())];
                self.random_pod(index, "url")
            })
            .collect();
        self.publish_url(&templates);
    }

    fn kill_some_container(&mut self) {
        let all = self.objects.containers.values();
        let running: Vec<String> =
            all.filter(|c| c.is_running() && !c.foreign).map(|c| c.id.clone()).collect();
        if !running.is_empty() {
            let id = &running[self.rng.random_range(0..running.len())];
            let pod = self.objects.containers[id].pod().to_owned();
            self.note(&pod, "container killed from outside".to_owned());
            self.end(id, 137, "Error");
        }
    }

    fn kill_some_sandbox(&mut self) {
        let all = self.objects.sandboxes.values();
        let ready: Vec<String> =
            all.filter(|s| s.ready && !s.foreign).map(|s| s.id.clone()).collect();
        if !ready.is_empty() {
            let id = &ready[self.rng.random_range(0..ready.len())];
            self.unready_sandbox(&id.clone(), "killed from outside");
        }
    }
}
