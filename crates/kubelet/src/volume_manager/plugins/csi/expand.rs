//! Growing a volume that is in use: the driver makes its file system fill what the
//! volume has become.
//!
//! Nobody else works on the volume meanwhile. Upstream: pkg/volume/csi/expander.go.

use plugin_apis::csi::NodeCapability;
use tonic::Code;

use super::super::super::csi::{CsiSpec, rpc_error};
use super::super::super::growth::Failure;
use super::super::super::layout::VolumeName;
use super::super::Means;
use super::notes::Paths;
use super::{CsiError, block, staging};

/// Has the driver grow a volume that is made, on a node of its own. A driver that cannot
/// do it is left alone, because then nothing on the node needs it.
pub(in super::super) async fn grow(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<(), CsiError> {
    let Some(bytes) = spec.wanted_bytes() else { return Ok(()) };
    let _turn = means.turn(true, &spec.driver, &spec.handle).await;
    match expand(means, name, spec, bytes).await {
        Err(CsiError::NoExpansion(_)) => Ok(()),
        asked => asked,
    }
}

/// Asks the driver. Who holds the volume's turn may call this.
pub(in super::super) async fn expand(
    means: &Means<'_>,
    name: &VolumeName,
    spec: &CsiSpec,
    bytes: i64,
) -> Result<(), CsiError> {
    let Some(persistent) = &spec.persistent else { return Ok(()) };
    let driver = means.drivers.get(&spec.driver).map_err(CsiError::NoDriver)?;
    let asked = driver.node.capabilities().await;
    let capabilities = asked.map_err(|error| CsiError::Expandable(rpc_error(&error)))?;
    if !capabilities.contains(&NodeCapability::ExpandVolume) {
        return Err(CsiError::NoExpansion(spec.driver.clone()));
    }
    let secrets = persistent.expand_secrets(|key| means.objects.get(key));
    let secrets = secrets.map_err(CsiError::ExpandSecret)?;
    let staged = capabilities.contains(&NodeCapability::StageUnstageVolume);
    let (path, staging) = match persistent.block {
        true => block::places(means, &persistent.volume)?,
        false => {
            let paths = Paths::of(means, spec.place(name));
            (paths.target_text()?.to_owned(), staging::place(means, spec)?)
        }
    };
    let staging = if staged { staging } else { String::new() };
    let request = spec.expand_request(path, staging, bytes, secrets, &capabilities);
    let grown = driver.node.expand(request).await;
    grown.map_err(|error| CsiError::Expand {
        failure: failure(error.code()),
        why: rpc_error(&error),
    })
}

fn failure(code: Code) -> Failure {
    match code {
        Code::FailedPrecondition => Failure::InUse,
        Code::InvalidArgument | Code::OutOfRange | Code::NotFound => Failure::Infeasible,
        _ => Failure::Other,
    }
}
