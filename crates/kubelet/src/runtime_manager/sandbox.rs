//! Making a pod's sandbox.
//!
//! Reads the node's resolver file and the runtime's abilities, makes the pod's
//! directories, records events. Upstream: createPodSandbox in
//! pkg/kubelet/kuberuntime/kuberuntime_sandbox.go.

use std::sync::OnceLock;

use cri::{CallError, CallErrorKind, v1};
use kubelet_model::{DesiredPod, EventObject, EventType, SandboxId};

use super::dns::{self, Notice};
use super::executor::{ActionError, Executor, file_error};
use super::refusal::{self, Refusal};
use super::sandbox_spec::{self, SandboxFacts};
use super::{log_paths, user_namespace};
use crate::container_manager;

/// Reason of everything that keeps a sandbox from being made.
const FAILED: &str = "FailedCreatePodSandBox";

impl Executor {
    pub(super) async fn create_sandbox(&mut self, attempt: u32) -> Result<(), ActionError> {
        let pod = self.spec("CreateSandbox")?.clone();
        let object = EventObject::pod(&pod);
        if attempt > 0 {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.recorder.record(&object, EventType::Normal, "SandboxChanged", message);
        }
        let made = self.make_sandbox(&pod, attempt).await;
        let (id, config) = made.inspect_err(|error| {
            let (reason, message) = told(error);
            self.recorder.record(&object, EventType::Warning, reason, message);
        })?;
        self.sandbox = Some((SandboxId::new(id), attempt));
        self.sandbox_config = Some(config);
        self.sandbox_seen = OnceLock::new();
        Ok(())
    }

    async fn make_sandbox(
        &self,
        pod: &DesiredPod,
        attempt: u32,
    ) -> Result<(String, v1::PodSandboxConfig), ActionError> {
        refusal::of_node(pod, &self.settings).map_or(Ok(()), |why| Err(refused(why)))?;
        let runtime = &*self.ports.runtime;
        let handler = if refusal::asks_runtime(pod) {
            let name = self.lists.runtime_handler(refusal::class_name(pod)).await;
            let name = name.map_err(|message| ActionError::Refused { reason: FAILED, message })?;
            let _call = self.calls.begin("Status");
            refusal::handler(pod, &name, &runtime.status().await?).map_err(refused)?
        } else {
            String::new()
        };
        self.make_pod_dirs()?;
        self.make_dir(&log_paths::pod_dir(&self.settings.pod_logs_dir, &self.identity))?;
        let (config, notices) = self.sandbox_config(pod, attempt)?;
        self.tell_of_dns(pod, notices);
        self.allocations.note_pod(pod);
        let _call = self.calls.begin("RunPodSandbox");
        let id = runtime.run_pod_sandbox(config.clone(), &handler).await?;
        Ok((id, config))
    }

    /// The sandbox's configuration, the same each time it is asked for.
    pub(super) fn sandbox_config(
        &self,
        pod: &DesiredPod,
        attempt: u32,
    ) -> Result<(v1::PodSandboxConfig, Vec<Notice>), ActionError> {
        let (dns, notices) = dns::of_pod(pod, &self.settings, self.host_dns()?);
        let failed = |message| ActionError::Refused { reason: FAILED, message };
        let users = if pod.spec().host_users == Some(false) {
            let (fs, ids) = (&*self.ports.fs, &self.settings.user_ids);
            user_namespace::of_pod(fs, &self.settings.root_dir, pod.uid(), ids).map_err(failed)?
        } else {
            user_namespace::of_host()
        };
        let facts = SandboxFacts { settings: &self.settings, dns, users };
        let mut config = sandbox_spec::sandbox_config(pod, attempt, facts).map_err(failed)?;
        // Made here, so that a group that went missing is back before anything starts in it.
        let cgroup_parent = self.pod_containers().ensure(pod)?;
        config.linux.get_or_insert_default().cgroup_parent = cgroup_parent;
        Ok((config, notices))
    }

    fn host_dns(&self) -> Result<v1::DnsConfig, ActionError> {
        let Some(path) = &self.settings.resolv_conf else { return Ok(v1::DnsConfig::default()) };
        let content = self.ports.fs.read(path, dns::RESOLV_CONF_BYTES_MAX);
        let content = content.map_err(file_error("read", path))?;
        dns::parse(&String::from_utf8_lossy(&content)).map_err(|why| ActionError::File {
            what: "parse",
            path: path.clone(),
            why,
        })
    }

    /// The sandbox is there, but the runtime does not tell of it.
    pub(super) fn tell_of_sandbox_status(&self, pod: &DesiredPod, error: &CallError) {
        let text = format!("Unable to get pod sandbox status: {}", in_go(error));
        let object = EventObject::pod(pod);
        self.recorder.record(&object, EventType::Warning, "FailedPodSandBoxStatus", text);
    }

    fn tell_of_dns(&self, pod: &DesiredPod, notices: Vec<Notice>) {
        let object = EventObject::pod(pod);
        let warn = |object: &EventObject, reason, message: String| {
            self.recorder.record(object, EventType::Warning, reason, message);
        };
        for notice in notices {
            match notice {
                Notice::Trimmed(message) => warn(&object, "DNSConfigForming", message),
                Notice::MissingClusterDns => {
                    let message = "kubelet does not have ClusterDNS IP configured and cannot \
                                   create Pod using \"ClusterFirst\" policy. Falling back to \
                                   \"Default\" policy.";
                    let node = EventObject::Node(self.settings.node_name.clone());
                    warn(&node, "MissingClusterDNS", message.to_owned());
                    let whose = format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid());
                    let of_pod = format!("pod: {whose:?}. {message}");
                    warn(&object, "MissingClusterDNS", of_pod);
                }
            }
        }
    }
}

fn refused(Refusal { reason, message }: Refusal) -> ActionError {
    ActionError::Refused { reason, message }
}

/// Reason and message of the event for an error.
fn told(error: &ActionError) -> (&'static str, String) {
    match error {
        ActionError::Refused { reason, message } if *reason != FAILED => (reason, message.clone()),
        ActionError::Refused { message, .. } => {
            (FAILED, format!("Failed to create pod sandbox: {message}"))
        }
        ActionError::Cgroup(error) => {
            (container_manager::FAILED_CREATE, container_manager::failed_create_message(error))
        }
        ActionError::Call(call) => {
            (FAILED, format!("Failed to create pod sandbox: {}", in_go(call)))
        }
        ActionError::PodDirectories { .. } => ("Failed", error.to_string()),
        other => (FAILED, format!("Failed to create pod sandbox: {other}")),
    }
}

/// An error in the words of Go's gRPC.
fn in_go(error: &CallError) -> String {
    match &error.kind {
        CallErrorKind::Answered { code, message } => {
            format!("rpc error: code = {code:?} desc = {message}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use cgroups::CgroupError;

    use super::*;
    use crate::runtime_manager::testing::{Bench, pod};

    /// Directories come first: the runtime is not even asked.
    #[tokio::test]
    async fn a_pod_without_directories_fails_in_upstreams_words() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("a file");
        let bench = Bench::new(|settings, _| settings.root_dir = file.clone());
        let mut executor = bench.executor(Some(&pod("")));
        let error = executor.create_sandbox(0).await.expect_err("no directory can be made");
        let path = file.join("pods/u1");
        let expected = format!(
            "error making pod data directories: cannot create {}: Not a directory (os error 20)",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        let [event] = &bench.recorder.all()[..] else { panic!("one event") };
        assert_eq!((event.kind, event.reason), (EventType::Warning, "Failed"));
        assert_eq!(event.message, expected);
        assert!(bench.calls().is_empty());
    }

    #[test]
    fn each_failure_has_its_reason_and_words() {
        let refused = |reason| ActionError::Refused { reason, message: "no".to_owned() };
        let group = CgroupError::NotMounted("/sys/fs/cgroup".into());
        let words = format!("unable to ensure pod container exists: {group}");
        let call = |kind| {
            ActionError::Call(CallError { call: "RunPodSandbox", object: String::new(), kind })
        };
        let away = CallErrorKind::Unreachable("no socket".to_owned());
        for (error, reason, message) in [
            (ActionError::Cgroup(group), "FailedCreatePodContainer", words.as_str()),
            (refused("SysctlForbidden"), "SysctlForbidden", "no"),
            (refused(FAILED), FAILED, "Failed to create pod sandbox: no"),
            (
                call(away),
                FAILED,
                "Failed to create pod sandbox: cannot reach the runtime: no socket",
            ),
        ] {
            assert_eq!(told(&error), (reason, message.to_owned()));
        }
    }
}
