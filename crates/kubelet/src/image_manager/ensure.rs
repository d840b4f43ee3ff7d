//! The way from a container's image to the runtime's: look, ask, pull, tell.
//!
//! Upstream: EnsureImageExists in pkg/kubelet/images/image_manager.go.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use cri::v1;
use futures_util::poll;
use kubelet_config::go_duration::GoDuration;
use kubelet_model::{DesiredPod, EventObject, EventType, Mono, WaitReason, Waiting};

use tokio::time::sleep;

use super::pod_secrets::{PodSecrets, SecretLogin};
use super::puller::{PullError, Pulled, error_text};
use super::records::{Intent, PodCredentials, PullCredentials};
use super::reference::{self, Reference};
use super::{EnsuredImage, ImageProblem, Images, Manager, NO_LOGIN_FROM};
use crate::progress::{Calls, Pull};

/// What an error text begins with if the registry is to blame.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// What an error text begins with if a signature is wrong.
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

/// How long a failed pull is told of before the next try, which the back-off may
/// refuse: as long as upstream rests after an error.
const TOLD_MAX: Duration = Duration::from_secs(10);

/// How often it is told how far a pull is.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// One pod's wish for one image.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    /// The pod.
    pub pod: &'a DesiredPod,
    /// The container that runs the image; `None` if it is that of a volume.
    pub container: Option<&'a str>,
    /// The image, as the pod names it.
    pub image: &'a str,
    /// When to pull.
    pub policy: &'a str,
    /// Where calls are told of while they last.
    pub calls: &'a Calls,
    /// What the pod may pull with, before what every pod may.
    pub secrets: &'a PodSecrets,
}

impl Images {
    /// Makes sure that an image is there and that the pod may use it.
    /// `before_pull` is called if that may take long.
    pub async fn ensure(
        &self,
        wish: Wish<'_>,
        sandbox: &v1::PodSandboxConfig,
        before_pull: &(dyn Fn() + Sync),
    ) -> Result<EnsuredImage, ImageProblem> {
        let object = match wish.container {
            Some(name) => EventObject::container(wish.pod, name),
            None => Some(EventObject::pod(wish.pod)),
        };
        let request = Request { manager: &self.0, wish, object, sandbox, before_pull };
        let mut course = Course::default();
        let ensured = request.ensure(&mut course).await;
        self.0.metrics.requested(wish.policy, course.present, course.pull_required);
        ensured
    }
}

/// What a wish came across, as far as it got.
#[derive(Default)]
struct Course {
    present: Option<bool>,
    pull_required: Option<bool>,
}

struct Request<'a> {
    manager: &'a Manager,
    wish: Wish<'a>,
    object: Option<EventObject>,
    sandbox: &'a v1::PodSandboxConfig,
    before_pull: &'a (dyn Fn() + Sync),
}

impl Request<'_> {
    async fn ensure(&self, course: &mut Course) -> Result<EnsuredImage, ImageProblem> {
        let image = self.wish.image;
        let reference = reference::parse(image).map_err(|error| {
            let why = format!("couldn't parse image name {image:?}: {error}");
            let message = format!("Failed to apply default image tag {image:?}: {why}");
            self.tell(EventType::Warning, "InspectFailed", &message);
            problem(WaitReason::InvalidImageName, message)
        })?;
        let annotations = self.wish.pod.pod().metadata.annotations.clone().unwrap_or_default();
        let spec =
            v1::ImageSpec { image: reference.pullable.clone(), annotations, ..Default::default() };
        let never = self.wish.policy == "Never";
        let found = self.present(&spec).await?;
        course.present = (self.wish.policy != "Always").then_some(found.is_some());
        course.pull_required = (found.is_some() || !never).then_some(true);
        let own = self.wish.secrets.find(&reference.repository);
        let present = found.is_some();
        // A malformed secret does no harm where the image is open to every pod.
        if let Some(image) = found
            && self.may_use(&image.id, own.as_deref().unwrap_or_default())
        {
            course.pull_required = Some(false);
            return Ok(EnsuredImage { id: image.id.clone(), details: Some(image) });
        }
        if never && (own.is_ok() || !present) {
            // An image that the pod may not use is not there, as far as it can tell.
            let message =
                format!("Container image {image:?} is not present with pull policy of Never");
            self.tell(EventType::Warning, "ErrImageNeverPull", &message);
            return Err(problem(WaitReason::ErrImageNeverPull, message));
        }
        let own = own.map_err(|error| {
            let message = format!("Failed to pull image {image:?}: {error}");
            self.tell(EventType::Warning, "Failed", &message);
            problem(WaitReason::ErrImagePull, error.to_string())
        })?;
        self.hold_back()?;
        (self.before_pull)();
        self.pull(&reference, spec, own).await
    }

    /// The image, if the policy allows to look for it and it is there.
    async fn present(&self, spec: &v1::ImageSpec) -> Result<Option<v1::Image>, ImageProblem> {
        if !matches!(self.wish.policy, "IfNotPresent" | "Never") {
            return Ok(None);
        }
        let call = self.wish.calls.begin(format!("ImageStatus {}", self.wish.image));
        let found = self.manager.ports.runtime.image_status(spec.clone()).await;
        drop(call);
        found.map_err(|error| {
            let image = self.wish.image;
            let message = format!("Failed to inspect image {image:?}: {}", error_text(&error));
            self.tell(EventType::Warning, "InspectFailed", &message);
            problem(WaitReason::ImageInspectError, message)
        })
    }

    fn may_use(&self, id: &str, own: &[SecretLogin]) -> bool {
        let image = self.wish.image;
        // Service accounts come with the API server.
        let secrets = own.iter().map(|one| one.secret.clone()).collect();
        let own = PodCredentials { secrets, service_account: None };
        let words = match &self.manager.records {
            None => "already present on machine",
            Some(records) if records.may_use(image, id, &own) => {
                "already present on machine and can be accessed by the pod"
            }
            Some(_) => return false,
        };
        self.tell(EventType::Normal, "Pulled", &format!("Container image {image:?} {words}"));
        true
    }

    /// A pull that failed a moment ago rests.
    fn hold_back(&self) -> Result<(), ImageProblem> {
        let image = self.wish.image;
        let held = self.manager.failures.held(self.wish.pod.uid(), image, self.now());
        let Some(held) = held else { return Ok(()) };
        let message = format!("Back-off pulling image {image:?}");
        self.tell(EventType::Normal, "BackOff", &message);
        let message = format!("{message}: {}", held.why);
        let waiting = Waiting { reason: WaitReason::ImagePullBackOff, message };
        Err(ImageProblem { waiting, retry_after: Some(held.rest) })
    }

    async fn pull(
        &self,
        reference: &Reference,
        spec: v1::ImageSpec,
        own: Vec<SecretLogin>,
    ) -> Result<EnsuredImage, ImageProblem> {
        let (manager, image) = (self.manager, self.wish.image);
        let account = self.wish.pod.spec().service_account_name.as_deref().unwrap_or_default();
        let call = self.wish.calls.begin(format!("logins for {}", reference.repository));
        let mut logins: Vec<_> = own.iter().map(|one| one.login.clone()).collect();
        let (found, unhelpful) = manager.logins(&reference.repository, account).await;
        logins.extend(found);
        drop(call);
        let intent = self.begin()?;
        self.tell(EventType::Normal, "Pulling", &format!("Pulling image {image:?}"));
        let began = self.now();
        let name = spec.image.clone();
        let pull = manager.puller.pull(spec, logins, self.sandbox.clone());
        match self.tell_while(&name, pull).await {
            Ok(pulled) => Ok(self.succeeded(pulled, began, intent, &own)),
            Err(error) => Err(self.failed(&error, &unhelpful)),
        }
    }

    /// Waits for a pull and tells meanwhile how far it is.
    async fn tell_while<T>(&self, image: &str, pull: impl Future<Output = T>) -> T {
        let call = self.wish.calls.begin(format!("PullImage {image}"));
        let mut pull = pin!(pull);
        // Joins or enters the queue, so that the first words are true.
        if let Poll::Ready(done) = poll!(&mut pull) {
            return done;
        }
        loop {
            if let Some(state) = self.manager.puller.state(image) {
                let pull = Pull { image: self.wish.image.to_owned(), state };
                call.pulls(format!("PullImage {image}: {state}"), pull);
            }
            tokio::select! { biased;
                done = &mut pull => return done,
                () = sleep(TELL_EVERY) => {}
            }
        }
    }

    fn begin(&self) -> Result<Option<Intent>, ImageProblem> {
        let Some(records) = &self.manager.records else { return Ok(None) };
        let image = self.wish.image;
        records.begin(image).map(Some).map_err(|error| {
            let message = format!(
                "Failed to record image pull intent for container image {image:?}: {error}"
            );
            problem(WaitReason::ErrImagePull, message)
        })
    }

    fn succeeded(
        &self,
        pulled: Pulled,
        began: Mono,
        intent: Option<Intent>,
        own: &[SecretLogin],
    ) -> EnsuredImage {
        let Pulled { image_ref, details, login, .. } = pulled;
        // The size is nice to know, no more.
        let size = details.as_ref().map_or(0, |details| details.size);
        let image = self.wish.image;
        let took = self.now().since(began);
        let message = format!(
            "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
            go_millis(pulled.took),
            go_millis(took),
            size
        );
        self.manager.metrics.pulled(size, took);
        self.tell(EventType::Normal, "Pulled", &message);
        tracing::info!(image, bytes = size, "pulled image");
        if let Some(intent) = intent {
            // What no secret of the pod's opened is open to every pod.
            let by = own.iter().find(|one| Some(&one.login) == login.as_ref());
            let credentials = by.map_or_else(PullCredentials::node_wide, |by| PullCredentials {
                kubernetes_secrets: vec![by.secret.clone()],
                ..PullCredentials::default()
            });
            intent.succeeded(&image_ref, &credentials);
        }
        EnsuredImage { id: image_ref, details }
    }

    /// `unhelpful` are the credential providers that gave no login, which may be why.
    fn failed(&self, error: &PullError, unhelpful: &[String]) -> ImageProblem {
        let image = self.wish.image;
        self.tell(
            EventType::Warning,
            "Failed",
            &format!("Failed to pull image {image:?}: {error}"),
        );
        let (reason, mut message) = explain(image, &error.message);
        for provider in unhelpful {
            message = message + NO_LOGIN_FROM + provider;
        }
        // A runtime that is away says nothing about the image; the plan paces the next try.
        let retry_after = (!error.unreachable).then(|| {
            let (uid, now) = (self.wish.pod.uid(), self.now());
            let rest = self.manager.failures.note(uid, image, (reason, &message), now);
            // The next try comes while the pull rests. Should the image have come by
            // another way it is found then; if not, the status tells of the back-off.
            (rest / 2).min(TOLD_MAX)
        });
        ImageProblem { waiting: Waiting { reason, message }, retry_after }
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
