//! One registration: ask who is there, check it, enter it, announce it, tell it.
//!
//! Only CSI drivers are taken; others are told so. Upstream:
//! pluginmanager/operationexecutor, pkg/volume/csi/csi_plugin.go.

use cluster::csi_node::{CsiNodeHandle, NotAnnounced};
use plugin_apis::csi::NodeGetInfoResponse;
use plugin_apis::pluginregistration::{CSI_PLUGIN, PluginInfo};
use plugin_apis::{CallError, EndpointError};

use super::drivers::{CsiDriver, Drivers, NotEntered, Seat};
use super::version::{self, Version};
use crate::object_cache::Objects;
use crate::ports::{Plugins, Registrar};

/// Longest name of a driver, as in an API server.
const NAME_MAX: usize = 63;
/// Versions of a driver that are looked at and shown.
const VERSIONS_MAX: usize = 32;

/// Why a plugin is not registered.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RegisterError {
    /// It does not answer as it should.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It names no socket that can be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Plugins of its type are not taken.
    #[error(
        "no handler registered for plugin type: {kind:?} at socket {socket}; this release takes \
         CSI drivers (CSIPlugin) only"
    )]
    Kind { kind: String, socket: String },
    /// Its name is none.
    #[error(
        "{name:?} is no name of a CSI driver: it must have at most {NAME_MAX} letters, digits, \
         '-' and '.', and a letter or digit at either end"
    )]
    Name { name: String },
    /// It says nothing of versions.
    #[error("Plugin returned an empty list for supported versions")]
    NoVersions,
    /// None of its versions is spoken here.
    #[error("None of the versions specified {0:?} are supported; the driver must speak CSI 1.x")]
    Versions(Vec<String>),
    /// There is no room for it.
    #[error(transparent)]
    NotEntered(#[from] NotEntered),
    /// The cluster does not hear of it.
    #[error(transparent)]
    NotAnnounced(#[from] NotAnnounced),
}

/// A driver that is registered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Registered {
    /// Its name.
    pub name: String,
    /// The cluster knows of it, or there is none.
    pub announced: bool,
}

/// Registers whoever is behind a socket. While there is no API server, and pods run from
/// what was kept, drivers serve them though the cluster does not know of it.
pub(super) async fn register(
    plugins: &dyn Plugins,
    drivers: &Drivers,
    seat: &Seat,
    announcer: Option<&CsiNodeHandle>,
    objects: &Objects,
) -> Result<Registered, RegisterError> {
    let registrar = plugins.registrar(&seat.socket)?;
    let info = registrar.info().await?;
    let leave = |name: &str| {
        drivers.leave(seat);
        if let Some(announcer) = announcer {
            announcer.withdraw(name);
        }
    };
    let mut entered = enter(plugins, drivers, seat, &info).await;
    let mut announced = true;
    if let (Ok(name), Some(announcer)) = (&entered, announcer)
        && let Err(error) = announcer.announce(name).await
    {
        announced = false;
        if !objects.is_offline() {
            leave(name);
            entered = Err(error.into());
        }
    }
    if let Err(error) = &entered {
        refuse(&*registrar, seat, error).await;
    }
    let name = entered?;
    // Told last: whoever hears that it is registered finds it so.
    if let Err(error) = registrar.notify(Ok(())).await {
        leave(&name);
        return Err(error.into());
    }
    Ok(Registered { name, announced })
}

async fn enter(
    plugins: &dyn Plugins,
    drivers: &Drivers,
    seat: &Seat,
    info: &PluginInfo,
) -> Result<String, RegisterError> {
    let socket = seat.socket.display().to_string();
    let (name, version) = check(info, &socket)?;
    drivers.check(seat, &name, &version)?;
    let endpoint = match info.endpoint.as_str() {
        "" => socket,
        endpoint => endpoint.to_owned(),
    };
    let node = plugins.csi(&name, &endpoint)?;
    let NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology } =
        node.info().await?;
    let topology = accessible_topology.unwrap_or_default().segments.into_iter().collect();
    let driver = CsiDriver {
        name: name.clone(),
        version,
        endpoint,
        node_id,
        volumes_max: max_volumes_per_node,
        topology,
        node,
    };
    drivers.enter(seat, driver)?;
    Ok(name)
}

/// What a plugin says of itself, if it is a driver that can be used.
fn check(info: &PluginInfo, socket: &str) -> Result<(String, Version), RegisterError> {
    let shown = |text: &str| text.chars().take(NAME_MAX + 1).collect::<String>();
    if info.r#type != CSI_PLUGIN {
        let (kind, socket) = (shown(&info.r#type), socket.to_owned());
        return Err(RegisterError::Kind { kind, socket });
    }
    if !is_name(&info.name) {
        return Err(RegisterError::Name { name: shown(&info.name) });
    }
    if info.supported_versions.is_empty() {
        return Err(RegisterError::NoVersions);
    }
    let versions = &info.supported_versions[..info.supported_versions.len().min(VERSIONS_MAX)];
    match version::highest_supported(versions) {
        Some(version) => Ok((info.name.clone(), version)),
        None => Err(RegisterError::Versions(versions.iter().map(|text| shown(text)).collect())),
    }
}

/// It becomes part of paths.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let ends = name.starts_with(plain) && name.ends_with(plain);
    let inside = name.chars().all(|c| plain(c) || c == '-' || c == '.');
    ends && inside && name.len() <= NAME_MAX
}

async fn refuse(registrar: &dyn Registrar, seat: &Seat, error: &RegisterError) {
    let message = format!("RegisterPlugin error -- plugin registration failed with err: {error}");
    if let Err(error) = registrar.notify(Err(message)).await {
        let socket = seat.socket.display();
        tracing::debug!(%socket, %error, "the plugin does not hear why it is refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: &str, name: &str, versions: &[&str]) -> Result<String, String> {
        let info = PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: String::new(),
            supported_versions: versions.iter().map(|text| (*text).to_owned()).collect(),
        };
        let checked = check(&info, "/r/x.sock");
        checked.map(|(name, version)| format!("{name} {version}")).map_err(|e| e.to_string())
    }

    #[test]
    fn only_drivers_that_can_be_used_are_taken() {
        assert_eq!(verdict("CSIPlugin", "a.example", &["1.3.0"]), Ok("a.example 1.3.0".to_owned()));
        let long = "x".repeat(64);
        for (kind, name, versions, why) in [
            ("DevicePlugin", "gpu", &["1.0"][..], "no handler registered for plugin type"),
            ("DRAPlugin", "gpu", &["1.0"], "no handler registered for plugin type: \"DRAPlugin\""),
            ("CSIPlugin", "../x", &["1.0"], "is no name of a CSI driver"),
            ("CSIPlugin", "", &["1.0"], "is no name of a CSI driver"),
            ("CSIPlugin", &long, &["1.0"], "is no name of a CSI driver"),
            ("CSIPlugin", "a.b", &[], "empty list for supported versions"),
            ("CSIPlugin", "a.b", &["0.3.0", "2.1"], "None of the versions specified"),
        ] {
            let error = verdict(kind, name, versions).unwrap_err();
            assert!(error.contains(why), "{kind} {name}: {error}");
        }
    }
}
