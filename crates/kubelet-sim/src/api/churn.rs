//! What users and controllers do to the cluster: pods come, change and go.

use std::time::Duration;

use api_client::{Call, Patch};
use jiff::SignedDuration;
use rand::RngExt;
use serde_json::{Value, json};

use super::{Away, pod_path};
use crate::config_map::CONFIG;
use crate::manifest::{NAMESPACE, PodTemplate, REVISION_LABEL};
use crate::oracle::Place;
use crate::sim::NODE;
use crate::world::State;

/// Names of pods that churn uses.
const NAMES: usize = 5;
/// By how much revisions rise when the store is restored, as Kubernetes demands of those
/// who restore one: no client could tell otherwise which of two histories it hears.
const BUMP: u64 = 1_000_000_000;

impl State {
    /// Makes a pod at the server, bound to the node; returns it with its uid and revision.
    pub(crate) fn create_pod(&mut self, template: &PodTemplate) -> PodTemplate {
        let mut template = template.clone();
        template.fixed_uid = None;
        template.revision = self.oracle.next_revision();
        let pod = template.pod_name(NODE);
        let mut object = template.to_json();
        object["metadata"]["name"] = json!(pod);
        object["spec"]["nodeName"] = json!(NODE);
        let all = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let server = self.api.as_ref().expect("there is a server");
        let made = server.ask(Call::post(&all, object)).expect("a pod that can be made");
        template.fixed_uid = made["metadata"]["uid"].as_str().map(str::to_owned);
        let now = self.now();
        let template = self.oracle.publish(place(&template.name), &template, now);
        let uid = template.fixed_uid.clone().unwrap_or_default();
        self.note(&pod, format!("created, revision {}, uid {uid}", template.revision));
        template
    }

    /// Changes a pod's images, and its label.
    pub(crate) fn edit_pod(&mut self, template: &PodTemplate) -> PodTemplate {
        let mut template = template.clone();
        template.revision = self.oracle.next_revision();
        let pod = template.pod_name(NODE);
        let images = template.containers.iter().map(|c| {
            let image = c.program.image();
            json!({"name": c.name, "image": image})
        });
        let change = json!({
            "metadata": {"labels": {REVISION_LABEL: template.revision.to_string()}},
            "spec": {"containers": images.collect::<Vec<Value>>()},
        });
        let server = self.api.as_ref().expect("there is a server");
        let call = Call::patch(&pod_path(&pod, &[]), Patch::Strategic, change);
        server.ask(call).expect("images can be changed");
        let now = self.now();
        let template = self.oracle.publish(place(&template.name), &template, now);
        self.note(&pod, format!("edited, revision {}", template.revision));
        template
    }

    /// Deletes a pod; with `force`, its object goes at once.
    pub(crate) fn delete_pod(&mut self, name: &str, force: bool) {
        let pod = format!("{name}-{NODE}");
        let options = if force { json!({"gracePeriodSeconds": 0}) } else { json!({}) };
        let server = self.api.as_ref().expect("there is a server");
        // One that is gone already need not go.
        let _ = server.ask(Call::delete(&pod_path(&pod, &[]), options));
        let now = self.now();
        self.oracle.withdraw(&place(name), now);
        self.note(&pod, format!("deleted, force: {force}"));
    }

    /// One random act of a user or controller.
    pub(crate) fn churn_api(&mut self) {
        if self.faults.features.objects && self.rng.random_bool(0.2) {
            return self.churn_api_config();
        }
        let index = self.rng.random_range(0..NAMES);
        let name = format!("p{index}");
        let wanted = self.oracle.at(&place(&name)).cloned();
        let server = self.api.as_ref().expect("there is a server");
        let there = server.pod(&format!("{name}-{NODE}")).is_some();
        match (self.rng.random_range(0..10), wanted, there) {
            (0..6, _, false) => drop(self.create_random_pod(&name)),
            (0..3, Some(mut template), true) => {
                if self.rng.random_bool(0.7) {
                    let features = self.faults.features;
                    let other = PodTemplate::random(&mut self.rng, &name, None, features);
                    let at = self.rng.random_range(0..template.containers.len());
                    template.containers[at].program = other.containers[0].program;
                }
                self.edit_pod(&template);
            }
            (3..6, Some(_), true) => self.delete_pod(&name, false),
            (6, _, true) => self.delete_pod(&name, true),
            (7, _, true) => {
                self.delete_pod(&name, true);
                self.create_random_pod(&name);
            }
            _ => {}
        }
    }

    fn create_random_pod(&mut self, name: &str) -> PodTemplate {
        let features = self.faults.features;
        let template = PodTemplate::random(&mut self.rng, name, None, features);
        self.create_pod(&template)
    }

    fn churn_api_config(&mut self) {
        let version = self.rng.random_range(1..1_000_000);
        let server = self.api.as_ref().expect("there is a server");
        match self.rng.random_bool(0.2) {
            true => {
                server.delete_config(CONFIG);
                self.config = None;
                self.note("", "ConfigMap deleted".to_owned());
            }
            false => self.put_api_config(version),
        }
    }

    /// Writes the ConfigMap that pods mount.
    pub(crate) fn put_api_config(&mut self, version: u64) {
        let server = self.api.as_ref().expect("there is a server");
        server.put_config(CONFIG, &json!({"version": version.to_string()}));
        self.config = Some(version);
        self.note("", format!("ConfigMap = version {version}"));
    }

    /// The server's store is restored: pods are as they were then. Its revisions go on as
    /// many later; with none, numbers mean something else than before.
    pub(crate) fn restore_api(&mut self, changes: u64, bump: u64) {
        let server = self.api.as_mut().expect("there is a server");
        let to = server.restore(changes, bump);
        server.record.forget_phases();
        server.record.excuse_all();
        let (pods, config) = (server.pods(), server.config(CONFIG, "version"));
        self.config = config.and_then(|text| text.parse().ok());
        self.note("", format!("API server restored to revision {to}"));
        let now = self.now();
        let mut absent = self.oracle.api_places();
        for pod in pods {
            let labels = pod.metadata.labels.unwrap_or_default();
            let revision = labels.get(REVISION_LABEL).and_then(|text| text.parse().ok());
            let template = revision.and_then(|revision| self.oracle.template(revision)).cloned();
            let Some(template) = template else { continue };
            if pod.metadata.deletion_timestamp.is_none() {
                absent.remove(&place(&template.name));
                self.oracle.publish(place(&template.name), &template, now);
            }
        }
        for place in absent {
            self.oracle.withdraw(&place, now);
        }
    }

    /// One of the acts that weights of the server's faults stand for.
    pub(crate) fn trouble_api(&mut self, which: usize) {
        match which {
            0 => {
                let seconds = match self.rng.random_range(0..10) {
                    0..6 => self.rng.random_range(1..60),
                    6..9 => self.rng.random_range(60..600),
                    _ => 3_600,
                };
                let how = [Away::Refusing, Away::Silent][self.rng.random_range(0..2)];
                self.take_api(Duration::from_secs(seconds), how);
            }
            1 => self.restart_api(),
            2 => {
                let changes = self.rng.random_range(1..100);
                self.restore_api(changes, BUMP);
            }
            3 => {
                let by = SignedDuration::from_secs(self.rng.random_range(-4_000..4_000));
                self.skew_api(by);
            }
            _ => {
                let seconds = self.rng.random_range(1..600);
                let how = [Away::Unauthorized, Away::NoCredentials][self.rng.random_range(0..2)];
                self.take_api(Duration::from_secs(seconds), how);
            }
        }
    }
}

fn place(name: &str) -> Place {
    Place::Api(name.to_owned())
}
