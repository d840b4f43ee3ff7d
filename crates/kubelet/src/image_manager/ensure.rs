//! The way from a container's image to the runtime's: look, ask, pull, tell.
//!
//! Upstream: EnsureImageExists in pkg/kubelet/images/image_manager.go.

use std::time::Duration;

use cri::v1;
use k8s_openapi::api::core::v1::Container;
use kubelet_config::go_duration::GoDuration;
use kubelet_model::{DesiredPod, EventObject, EventType, Mono, WaitReason, Waiting};

use super::puller::{PullError, Pulled, error_text};
use super::records::{Intent, PodCredentials, PullCredentials};
use super::reference::{self, Reference};
use super::{EnsuredImage, ImageProblem, Images, Manager};

/// What an error text begins with if the registry is to blame.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// What an error text begins with if a signature is wrong.
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

impl Images {
    /// Makes sure the container's image is there and the pod may use it.
    pub async fn ensure(
        &self,
        pod: &DesiredPod,
        container: &Container,
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<EnsuredImage, ImageProblem> {
        let request = Request {
            manager: &self.0,
            pod,
            object: EventObject::container(pod, &container.name),
            image: container.image.as_deref().unwrap_or_default(),
            policy: container.image_pull_policy.as_deref().unwrap_or_default(),
            sandbox,
        };
        let id = request.ensure().await?;
        Ok(EnsuredImage { id })
    }
}

/// One pod's wish for one image.
struct Request<'a> {
    manager: &'a Manager,
    pod: &'a DesiredPod,
    object: Option<EventObject>,
    image: &'a str,
    policy: &'a str,
    sandbox: &'a v1::PodSandboxConfig,
}

impl Request<'_> {
    async fn ensure(&self) -> Result<String, ImageProblem> {
        let image = self.image;
        let reference = reference::parse(image).map_err(|error| {
            let why = format!("couldn't parse image name {image:?}: {error}");
            let message = format!("Failed to apply default image tag {image:?}: {why}");
            self.tell(EventType::Warning, "InspectFailed", &message);
            problem(WaitReason::InvalidImageName, message)
        })?;
        let annotations = self.pod.pod().metadata.annotations.clone().unwrap_or_default();
        let spec =
            v1::ImageSpec { image: reference.pullable.clone(), annotations, ..Default::default() };
        self.tell_missing_secrets();
        if let Some(id) = self.present(&spec).await?
            && self.may_use(&id)
        {
            return Ok(id);
        }
        if self.policy == "Never" {
            // An image that the pod may not use is not there, as far as it can tell.
            let message =
                format!("Container image {image:?} is not present with pull policy of Never");
            self.tell(EventType::Warning, "ErrImageNeverPull", &message);
            return Err(problem(WaitReason::ErrImageNeverPull, message));
        }
        self.pull(&reference, spec).await
    }

    /// The id of the image, if the policy allows to look for it and it is there.
    async fn present(&self, spec: &v1::ImageSpec) -> Result<Option<String>, ImageProblem> {
        if !matches!(self.policy, "IfNotPresent" | "Never") {
            return Ok(None);
        }
        let found = self.manager.ports.runtime.image_status(spec.clone()).await;
        let found = found.map_err(|error| {
            let message =
                format!("Failed to inspect image {:?}: {}", self.image, error_text(&error));
            self.tell(EventType::Warning, "InspectFailed", &message);
            problem(WaitReason::ImageInspectError, message)
        })?;
        Ok(found.map(|image| image.id))
    }

    fn may_use(&self, id: &str) -> bool {
        let words = match &self.manager.records {
            None => "already present on machine",
            // Secrets and service accounts come with the API server.
            Some(records) if records.may_use(self.image, id, &PodCredentials::default()) => {
                "already present on machine and can be accessed by the pod"
            }
            Some(_) => return false,
        };
        let message = format!("Container image {:?} {words}", self.image);
        self.tell(EventType::Normal, "Pulled", &message);
        true
    }

    async fn pull(
        &self,
        reference: &Reference,
        spec: v1::ImageSpec,
    ) -> Result<String, ImageProblem> {
        let (manager, image) = (self.manager, self.image);
        let account = self.pod.spec().service_account_name.as_deref().unwrap_or_default();
        let logins = manager.logins(&reference.repository, account).await;
        let intent = self.begin()?;
        if let Some(held) = manager.failures.held(self.pod.uid(), image, self.now()) {
            let message = format!("Back-off pulling image {image:?}");
            self.tell(EventType::Normal, "BackOff", &message);
            let message = format!("{message}: {}", held.why);
            let waiting = Waiting { reason: WaitReason::ImagePullBackOff, message };
            return Err(ImageProblem { waiting, retry_after: Some(held.rest) });
        }
        self.tell(EventType::Normal, "Pulling", &format!("Pulling image {image:?}"));
        let began = self.now();
        match manager.puller.pull(spec, logins, self.sandbox.clone()).await {
            Ok(pulled) => Ok(self.succeeded(pulled, began, intent)),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn begin(&self) -> Result<Option<Intent>, ImageProblem> {
        let Some(records) = &self.manager.records else { return Ok(None) };
        records.begin(self.image).map(Some).map_err(|error| {
            let message = format!(
                "Failed to record image pull intent for container image {:?}: {error}",
                self.image
            );
            problem(WaitReason::ErrImagePull, message)
        })
    }

    fn succeeded(&self, pulled: Pulled, began: Mono, intent: Option<Intent>) -> String {
        let message = format!(
            "Successfully pulled image {:?} in {} ({} including waiting). Image size: {} bytes.",
            self.image,
            go_millis(pulled.took),
            go_millis(self.now().since(began)),
            pulled.size
        );
        self.tell(EventType::Normal, "Pulled", &message);
        tracing::info!(image = self.image, bytes = pulled.size, "pulled image");
        if let Some(intent) = intent {
            // Every login of a node without an API server is the node's own.
            intent.succeeded(&pulled.image_ref, &PullCredentials::node_wide());
        }
        pulled.image_ref
    }

    fn failed(&self, error: &PullError) -> ImageProblem {
        let image = self.image;
        self.tell(
            EventType::Warning,
            "Failed",
            &format!("Failed to pull image {image:?}: {error}"),
        );
        let (reason, message) = explain(image, &error.message);
        // A runtime that is away says nothing about the image; the plan paces the next try.
        let retry_after = (!error.unreachable).then(|| {
            let (uid, now) = (self.pod.uid(), self.now());
            // The plan holds the container back from here on.
            self.tell(EventType::Normal, "BackOff", &format!("Back-off pulling image {image:?}"));
            self.manager.failures.note(uid, image, (reason, &message), now)
        });
        ImageProblem { waiting: Waiting { reason, message }, retry_after }
    }

    fn tell_missing_secrets(&self) {
        let secrets = self.pod.spec().image_pull_secrets.iter().flatten();
        let names: Vec<&str> = secrets.map(|s| s.name.as_str()).filter(|n| !n.is_empty()).collect();
        if names.is_empty() {
            return;
        }
        let message = format!(
            "Unable to retrieve some image pull secrets ({}); \
             attempting to pull the image may not succeed.",
            names.join(", ")
        );
        let (object, reason) = (EventObject::pod(self.pod), "FailedToRetrieveImagePullSecret");
        self.manager.recorder.record(&object, EventType::Warning, reason, message);
    }

    fn tell(&self, kind: EventType, reason: &'static str, message: &str) {
        if let Some(object) = &self.object {
            self.manager.recorder.record(object, kind, reason, message);
        }
    }

    fn now(&self) -> Mono {
        self.manager.ports.clock.mono()
    }
}

fn problem(reason: WaitReason, message: String) -> ImageProblem {
    ImageProblem { waiting: Waiting { reason, message }, retry_after: None }
}

/// The reason a runtime's error text stands for, and what users read.
fn explain(image: &str, error: &str) -> (WaitReason, String) {
    if let Some(rest) = error.strip_prefix(REGISTRY_UNAVAILABLE) {
        let message =
            format!("image pull failed for {image} because the registry is unavailable{rest}");
        return (WaitReason::RegistryUnavailable, message);
    }
    if let Some(rest) = error.strip_prefix(SIGNATURE_VALIDATION_FAILED) {
        let message =
            format!("image pull failed for {image} because the signature validation failed{rest}");
        return (WaitReason::SignatureValidationFailed, message);
    }
    (WaitReason::ErrImagePull, error.to_owned())
}

fn go_millis(duration: Duration) -> GoDuration {
    GoDuration::from_millis(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_stand_for_reasons() {
        for (error, reason, message) in [
            ("no", WaitReason::ErrImagePull, "no"),
            (
                "RegistryUnavailable: down",
                WaitReason::RegistryUnavailable,
                "image pull failed for x because the registry is unavailable: down",
            ),
            (
                "SignatureValidationFailed: forged",
                WaitReason::SignatureValidationFailed,
                "image pull failed for x because the signature validation failed: forged",
            ),
        ] {
            assert_eq!(explain("x", error), (reason, message.to_owned()));
        }
    }

    #[test]
    fn durations_are_cut_to_milliseconds() {
        assert_eq!(go_millis(Duration::from_micros(1_234_567)).to_string(), "1.234s");
    }
}
