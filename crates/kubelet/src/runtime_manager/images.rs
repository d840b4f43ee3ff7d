//! The images a container needs before it can be made: those of the image volumes
//! it mounts, and its own.
//!
//! Reads the pod, asks the image manager, records events. Holds no turn at the
//! runtime while an image is pulled. Upstream: getImageVolumes and
//! toKubeContainerImageVolumes in pkg/kubelet/kuberuntime/kuberuntime_manager.go.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, ImageVolumeSource};
use kubelet_model::{ContainerName, DesiredPod, EventObject, EventType};

use super::executor::{ActionError, Executor};
use crate::image_manager::{EnsuredImage, ImageProblem, PodSecrets, Wish};

/// Image volumes by name, as the runtime is asked for them.
pub(super) type ImageVolumes = BTreeMap<String, v1::ImageSpec>;

/// What a runtime's error begins with if an image volume is to blame.
const MOUNT_FAILED: &str = "ImageVolumeMountFailed";
/// How runtimes that know no image volumes complain of a mount that has no path on
/// the host: containerd before 2.1, CRI-O before 1.31.
const NO_HOST_PATH: [&str; 2] = ["failed to mkdir \"\"", "HostPath is empty"];

/// What was made sure of for a container that is about to be made.
#[derive(Clone)]
pub(super) struct Ensured {
    /// Which container.
    pub(super) container: ContainerName,
    /// Its image.
    pub(super) image: EnsuredImage,
    /// The image volumes it mounts.
    pub(super) volumes: ImageVolumes,
    /// Configuration of the sandbox it belongs to.
    pub(super) sandbox_config: v1::PodSandboxConfig,
}

impl Executor {
    /// Gets the images of a container that is to be started next. `before_pull` is
    /// called if that may take long.
    pub async fn ensure_images(
        &mut self,
        name: &ContainerName,
        before_pull: &(dyn Fn() + Sync),
    ) -> Result<(), ActionError> {
        self.ensured = None;
        let ensured = self.ensure_all(name, before_pull).await;
        self.ensured = Some(ensured?);
        Ok(())
    }

    /// What the pod's own secrets open; users are told of those that are missing.
    fn pull_secrets(&self, pod: &DesiredPod) -> PodSecrets {
        let (secrets, missing) = PodSecrets::of(pod, &self.objects);
        if !missing.is_empty() {
            let message = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may \
                 not succeed.",
                missing.join(", ")
            );
            let (object, reason) = (EventObject::pod(pod), "FailedToRetrieveImagePullSecret");
            self.recorder.record(&object, EventType::Warning, reason, &message);
        }
        secrets
    }

    async fn ensure_all(
        &self,
        name: &ContainerName,
        before_pull: &(dyn Fn() + Sync),
    ) -> Result<Ensured, ActionError> {
        let pod = self.spec("StartContainer")?;
        let (container, _, attempt) = self.container_and_sandbox(pod, name)?;
        let container = &*container;
        let sandbox_config = match &self.sandbox_config {
            Some(made_from) => made_from.clone(),
            None => self.sandbox_config(pod, attempt)?.0,
        };
        let secrets = self.pull_secrets(pod);
        let volumes = self.ensure_volumes(pod, container, &secrets, &sandbox_config, before_pull);
        let volumes = volumes.await;
        let volumes = volumes.map_err(|problem| not_started(name, problem))?;
        let wish = Wish {
            pod,
            container: Some(&container.name),
            image: container.image.as_deref().unwrap_or_default(),
            policy: container.image_pull_policy.as_deref().unwrap_or_default(),
            calls: &self.calls,
            secrets: &secrets,
        };
        let image = self.images.ensure(wish, &sandbox_config, before_pull).await;
        let image = image.map_err(|problem| not_started(name, problem));
        let image = image.inspect_err(|error| self.tell_failure(name, "", error))?;
        let container = name.clone();
        Ok(Ensured { container, image, volumes, sandbox_config })
    }

    /// Gets every image volume that the container mounts. Of several problems the
    /// last one is told, and the next try is due when the first of them says so.
    async fn ensure_volumes(
        &self,
        pod: &DesiredPod,
        container: &Container,
        secrets: &PodSecrets,
        sandbox: &v1::PodSandboxConfig,
        before_pull: &(dyn Fn() + Sync),
    ) -> Result<ImageVolumes, ImageProblem> {
        let mut volumes = ImageVolumes::new();
        let mut failed: Option<ImageProblem> = None;
        for (name, source) in mounted(pod, container) {
            let image = source.reference.as_deref().unwrap_or_default();
            let policy = source.pull_policy.as_deref().unwrap_or_default();
            let calls = &self.calls;
            let wish = Wish { pod, container: None, image, policy, calls, secrets };
            match self.images.ensure(wish, sandbox, before_pull).await {
                Ok(found) => {
                    let annotations = pod.pod().metadata.annotations.clone().unwrap_or_default();
                    let spec = v1::ImageSpec {
                        image: found.id,
                        user_specified_image: image.to_owned(),
                        annotations,
                        ..Default::default()
                    };
                    volumes.insert(name.to_owned(), spec);
                }
                Err(problem) => {
                    let container = ContainerName::new(&container.name);
                    self.tell_failure(&container, "", &not_started(&container, problem.clone()));
                    let before = failed.and_then(|before| before.retry_after);
                    let soonest = [before, problem.retry_after].into_iter().flatten().min();
                    failed = Some(ImageProblem { retry_after: soonest, ..problem });
                }
            }
        }
        failed.map_or(Ok(volumes), Err)
    }
}

/// Is it the fault of an image volume that a container could not be made?
pub(super) fn is_to_blame(error: &str) -> bool {
    error.starts_with(MOUNT_FAILED) || is_unknown_to_runtime(error)
}

fn is_unknown_to_runtime(error: &str) -> bool {
    NO_HOST_PATH.iter().any(|words| error.contains(words))
}

/// The runtime's words, after what they mean if it knows no image volumes.
pub(super) fn explain(error: String) -> String {
    if !is_unknown_to_runtime(&error) {
        return error;
    }
    format!(
        "the container runtime does not support image volumes (containerd does from 2.1 on, CRI-O \
         from 1.31 on): {error}"
    )
}

/// The image volumes a container mounts, each once, in the order of its mounts.
pub(crate) fn mounted<'p>(
    pod: &'p DesiredPod,
    container: &Container,
) -> Vec<(&'p str, &'p ImageVolumeSource)> {
    let mut found: Vec<(&str, &ImageVolumeSource)> = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let mut all = pod.spec().volumes.iter().flatten();
        let volume = all.find(|volume| volume.name == mount.name);
        let image = volume.and_then(|volume| Some((volume.name.as_str(), volume.image.as_ref()?)));
        if let Some((name, source)) = image
            && found.iter().all(|(known, _)| *known != name)
        {
            found.push((name, source));
        }
    }
    found
}

fn not_started(name: &ContainerName, problem: ImageProblem) -> ActionError {
    let ImageProblem { waiting, retry_after } = problem;
    ActionError::NotStarted { name: name.clone(), waiting, retry_after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_manager::testing::pod_with;

    #[test]
    fn volumes_are_wanted_once_and_only_if_mounted() {
        let mounts = r#","volumeMounts":[{"name":"b","mountPath":"/b"},{"name":"a","mountPath":"/a"},
            {"name":"b","mountPath":"/c","subPath":"x"}]"#;
        let volumes = r#""volumes":[{"name":"a","image":{"reference":"r.io/a"}},
            {"name":"b","image":{"reference":"r.io/b:1"}},{"name":"c","image":{"reference":"r.io/c"}}]"#;
        let pod = pod_with("", mounts, volumes);
        let found = mounted(&pod, &pod.spec().containers[0]);
        let told: Vec<_> = found
            .iter()
            .map(|(name, source)| (*name, source.pull_policy.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(told, [("b", "IfNotPresent"), ("a", "Always")]);
    }

    #[test]
    fn runtimes_that_know_no_image_volumes_are_found_out() {
        let old = "failed to generate container \"c\" spec: failed to generate spec: failed to mkdir \"\": mkdir : no such file or directory";
        assert!(is_to_blame(old));
        assert!(explain(old.to_owned()).contains("does not support image volumes"));
        assert!(explain(old.to_owned()).ends_with(old));
        let other = "ImageVolumeMountFailed: no such path in the image";
        assert!(is_to_blame(other));
        assert_eq!(explain(other.to_owned()), other);
        assert!(!is_to_blame("failed to mkdir \"/x\": read-only file system"));
    }
}
