//! The layers of a configuration, laid over one another.
//!
//! Pure. Owns the tree so far and the origin of each of its leaves. Order of
//! calls is the order of precedence: baseline or file, drop-ins, flags. A profile comes
//! last and fills in only what nobody set.
//! Upstream: cmd/kubelet/app/server.go.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::decode::{DecodeError, known, to_tree};
use crate::defaults;
use crate::path::{FieldPath, leaves};
use crate::provenance::{Origin, Provenance};
use crate::wire::KubeletConfiguration;

/// A configuration in the making.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layers {
    tree: Value,
    provenance: Provenance,
}

impl Layers {
    /// What holds when nothing is configured.
    pub(crate) fn baseline() -> Self {
        let mut config = KubeletConfiguration::default();
        defaults::apply(&mut config);
        let plain = to_tree(&config);
        defaults::apply_legacy(&mut config);
        let tree = to_tree(&config);
        let origin = |path: &FieldPath, value: &Value| {
            if path.get(&plain) == Some(value) { Origin::Default } else { Origin::LegacyDefault }
        };
        let provenance = leaves(&tree)
            .into_iter()
            .map(|(path, value)| (path.clone(), origin(&path, value)))
            .collect();
        Self { tree, provenance }
    }

    /// A `--config` file, which replaces the baseline wholly.
    pub(crate) fn from_file(mut config: KubeletConfiguration, file: &Path) -> Self {
        if let Some(directory) = file.parent() {
            resolve_relative_paths(&mut config, directory);
        }
        let written = to_tree(&config);
        defaults::apply(&mut config);
        defaults::apply_eviction_hard(&mut config);
        let tree = to_tree(&config);
        let origin = |path: &FieldPath, value: &Value| {
            // A zero that stands for "not set" was overridden by the default.
            if path.get(&written) == Some(value) {
                Origin::File(file.to_owned())
            } else {
                Origin::Default
            }
        };
        let provenance = leaves(&tree)
            .into_iter()
            .map(|(path, value)| (path.clone(), origin(&path, value)))
            .collect();
        Self { tree, provenance }
    }

    /// One drop-in: a JSON merge patch (RFC 7396).
    pub(crate) fn patch(&mut self, patch: &Value, file: &Path) {
        merge(&mut self.tree, patch);
        for (path, value) in leaves(patch) {
            match value {
                Value::Null => self.provenance.forget(&path),
                Value::Object(_) if self.provenance.under(&path).next().is_some() => {}
                _ => self.provenance.set(path, Origin::DropIn(file.to_owned())),
            }
        }
    }

    /// Restores defaults of what drop-ins removed, and drops what nobody knows.
    pub(crate) fn settle(&mut self) -> Result<(), DecodeError> {
        let (mut config, _) = known(&self.tree)?;
        let before = to_tree(&config);
        defaults::apply(&mut config);
        let after = to_tree(&config);
        self.provenance = leaves(&after)
            .into_iter()
            .map(|(path, value)| {
                let kept = if path.get(&before) == Some(value) {
                    self.provenance.origin(&path).cloned()
                } else {
                    None
                };
                (path, kept.unwrap_or(Origin::Default))
            })
            .collect();
        self.tree = after;
        Ok(())
    }

    /// One flag. Maps are replaced, except feature gates, which merge key by key.
    pub(crate) fn flag(&mut self, path: &str, value: Value, name: &str) {
        let path = FieldPath::dotted(path);
        let origin = Origin::Flag(name.to_owned());
        match (value, path.get(&self.tree)) {
            (Value::Object(gates), _) if path == FieldPath::dotted("featureGates") => {
                for (gate, value) in gates {
                    path.child(&gate).set(&mut self.tree, value);
                    self.provenance.set(path.child(&gate), origin.clone());
                }
            }
            (Value::Array(added), Some(Value::Array(known))) if name == "vmodule" => {
                let all = known.iter().cloned().chain(added).collect();
                path.set(&mut self.tree, Value::Array(all));
                self.provenance.set(path, origin);
            }
            (value, _) => {
                path.set(&mut self.tree, value.clone());
                self.provenance.set(path.clone(), origin.clone());
                if let Value::Object(map) = value {
                    for key in map.keys() {
                        self.provenance.set(path.child(key), origin.clone());
                    }
                }
            }
        }
    }

    /// What a profile sets where nobody set anything.
    pub(crate) fn profile(&mut self, name: &'static str, defaults: Vec<(&'static str, Value)>) {
        for (path, value) in defaults {
            let path = FieldPath::dotted(path);
            if !self.provenance.origin(&path).is_some_and(Origin::is_user) {
                path.set(&mut self.tree, value);
                self.provenance.set(path, Origin::Profile(name));
            }
        }
    }

    /// The effective tree, its typed form, and where each value came from.
    pub(crate) fn finish(self) -> Result<(Value, KubeletConfiguration, Provenance), DecodeError> {
        let (config, _) = known(&self.tree)?;
        Ok((self.tree, config, self.provenance))
    }
}

/// RFC 7396: objects merge per key, `null` removes, everything else replaces.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// Paths in a `--config` file are relative to the file; drop-ins and flags have no such rule.
fn resolve_relative_paths(config: &mut KubeletConfiguration, directory: &Path) {
    let ca_file = config
        .authentication
        .as_mut()
        .and_then(|a| a.x509.as_mut())
        .and_then(|x| x.client_ca_file.as_mut());
    let fields = [
        config.static_pod_path.as_mut(),
        ca_file,
        config.tls_cert_file.as_mut(),
        config.tls_private_key_file.as_mut(),
        config.resolv_conf.as_mut(),
        config.volume_plugin_dir.as_mut(),
        config.pod_logs_dir.as_mut(),
    ];
    for field in fields.into_iter().flatten() {
        if !field.is_empty() && !field.starts_with('/') {
            *field = clean(&directory.join(&*field)).to_string_lossy().into_owned();
        }
    }
}

/// The path without `.`, `..` and doubled separators, decided by its text alone.
pub(crate) fn clean(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => {
                    out.pop();
                }
                Some(Component::RootDir) => {}
                _ => out.push(".."),
            },
            other => out.push(other),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

#[cfg(test)]
mod tests;
