//! Checks of the runtime's answers: a field the kubelet lives by must be set.
//!
//! Each check returns the answer or says what is wrong with it. Upstream:
//! staging/src/k8s.io/cri-client/pkg (verify functions).

use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::containerd::content;
use crate::port::Download;
use crate::v1;

/// containerd's namespace of everything CRI made.
pub(crate) const NAMESPACE: &str = "k8s.io";

/// A request to one of containerd's own services.
pub(crate) fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(NAMESPACE);
    request.metadata_mut().insert("containerd-namespace", namespace);
    request
}

/// The one API version that both sides speak.
pub(crate) const API_VERSION: &str = "0.1.0";

type Checked<T> = Result<T, String>;

fn set<T>(answer: T, fields: &[(&str, bool)]) -> Checked<T> {
    match fields.iter().find(|(_, is_set)| !is_set) {
        Some((field, _)) => Err(format!("{field} is not set")),
        None => Ok(answer),
    }
}

/// An id or reference that must not be empty.
pub(crate) fn text(field: &str, value: String) -> Checked<String> {
    let is_set = !value.is_empty();
    set(value, &[(field, is_set)])
}

pub(crate) fn version(reply: v1::VersionResponse) -> Checked<v1::VersionResponse> {
    if reply.version != API_VERSION {
        return Err(format!(
            "it speaks CRI API version {:?}, the kubelet {API_VERSION:?}: use a runtime with CRI v1",
            reply.version
        ));
    }
    let fields = [
        ("runtime_name", !reply.runtime_name.is_empty()),
        ("runtime_version", !reply.runtime_version.is_empty()),
        ("runtime_api_version", !reply.runtime_api_version.is_empty()),
    ];
    set(reply, &fields)
}

pub(crate) fn status(reply: v1::StatusResponse) -> Checked<v1::StatusResponse> {
    let has = |kind| {
        let conditions = reply.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.r#type == kind)
    };
    let fields = [
        ("condition RuntimeReady", has("RuntimeReady")),
        ("condition NetworkReady", has("NetworkReady")),
    ];
    set(reply, &fields)
}

pub(crate) fn sandbox_status(reply: v1::PodSandboxStatusResponse) -> Checked<v1::PodSandboxStatus> {
    let status = reply.status.ok_or("status is not set")?;
    let metadata = status.metadata.clone().unwrap_or_default();
    let fields = [
        ("status.id", !status.id.is_empty()),
        ("status.metadata.name", !metadata.name.is_empty()),
        ("status.metadata.namespace", !metadata.namespace.is_empty()),
        ("status.metadata.uid", !metadata.uid.is_empty()),
        ("status.created_at", status.created_at != 0),
    ];
    set(status, &fields)
}

pub(crate) fn container_status(reply: v1::ContainerStatusResponse) -> Checked<v1::ContainerStatus> {
    let status = reply.status.ok_or("status is not set")?;
    let fields = [
        ("status.id", !status.id.is_empty()),
        ("status.metadata.name", status.metadata.as_ref().is_some_and(|m| !m.name.is_empty())),
        ("status.created_at", status.created_at != 0),
        ("status.image.image", status.image.as_ref().is_some_and(|i| !i.image.is_empty())),
        ("status.image_ref", !status.image_ref.is_empty()),
    ];
    set(status, &fields)
}

/// No image at all is a proper answer.
pub(crate) fn image_status(reply: v1::ImageStatusResponse) -> Checked<Option<v1::Image>> {
    let Some(image) = reply.image else {
        return Ok(None);
    };
    let fields = [("image.id", !image.id.is_empty()), ("image.size", image.size != 0)];
    set(Some(image), &fields)
}

/// Writes whose size is not known yet tell nothing and are left out.
pub(crate) fn downloads(reply: content::ListStatusesResponse) -> Checked<Vec<Download>> {
    let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
    let statuses = reply.statuses.into_iter().filter(|status| status.total > 0);
    let download = |status: content::Status| Download {
        done: bytes(status.offset),
        total: bytes(status.total),
        name: status.r#ref,
    };
    Ok(statuses.map(download).collect())
}
