//! Makes sure a container's image is there.
//!
//! Upstream: pkg/kubelet/images.

use cri::{Runtime, v1};
use k8s_openapi::api::core::v1::Container;
use kubelet_model::{WaitReason, Waiting};

/// The image's reference in the runtime, pulled if the policy says so.
pub(super) async fn ensure(
    runtime: &dyn Runtime,
    container: &Container,
    sandbox_config: &v1::PodSandboxConfig,
) -> Result<String, Waiting> {
    let image = container.image.clone().unwrap_or_default();
    let spec = v1::ImageSpec {
        image: image.clone(),
        user_specified_image: image.clone(),
        ..Default::default()
    };
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    if policy != "Always" {
        let present = runtime.image_status(spec.clone()).await.map_err(|error| Waiting {
            reason: WaitReason::ImageInspectError,
            message: format!("Failed to inspect image \"{image}\": {}", error.reason_text()),
        })?;
        if let Some(present) = present {
            return Ok(present.id);
        }
        if policy == "Never" {
            return Err(Waiting {
                reason: WaitReason::ErrImageNeverPull,
                message: format!(
                    "Container image \"{image}\" is not present with pull policy of Never"
                ),
            });
        }
    }
    tracing::info!(image, "pulling image");
    let pulled = runtime.pull_image(spec, None, Some(sandbox_config.clone())).await;
    let reference = pulled.map_err(|error| Waiting {
        reason: WaitReason::ErrImagePull,
        message: error.reason_text(),
    })?;
    tracing::info!(image, "pulled image");
    Ok(reference)
}
