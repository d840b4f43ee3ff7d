//! What the files of configMap, secret, downwardAPI and projected volumes hold.
//!
//! Pure: objects are looked up by a function. Errors are upstream's words.
//! Upstream: pkg/volume/{configmap,secret,downwardapi,projected},
//! pkg/volume/util/nested_volumes.go.

mod sources;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use kubelet_model::token::TOKEN;
use kubelet_model::trust::{ANCHORS, TrustAsk};
use kubelet_model::{ConfigObject, ObjectKey, ObjectKind};
use mounts::publish::{Payload, PayloadFile};
use sha2::{Digest, Sha256};

use super::layout::PluginName;
pub(super) use sources::sources_of;

/// Which kind of volume it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// Files of a ConfigMap.
    ConfigMap,
    /// Files of a Secret.
    Secret,
    /// Files about the pod.
    DownwardApi,
    /// All of these together.
    Projected,
}

impl PayloadKind {
    /// The kind's plugin.
    pub(super) fn plugin(self) -> PluginName {
        match self {
            Self::ConfigMap => PluginName::config_map(),
            Self::Secret => PluginName::secret(),
            Self::DownwardApi => PluginName::downward_api(),
            Self::Projected => PluginName::projected(),
        }
    }

    /// The kind, as manifests name it.
    pub fn as_field(self) -> &'static str {
        match self {
            Self::ConfigMap => "configMap",
            Self::Secret => "secret",
            Self::DownwardApi => "downwardAPI",
            Self::Projected => "projected",
        }
    }

    /// Secrets, and what may be one, never touch the disk.
    pub(super) fn in_memory(self) -> bool {
        self != Self::ConfigMap
    }
}

/// Where a volume's files come from, and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadSpec {
    /// Which kind of volume.
    pub kind: PayloadKind,
    /// Later ones replace files of earlier ones.
    pub sources: Vec<PayloadSource>,
    /// The group that may read them.
    pub fs_group: Option<u32>,
    /// Memory it may take, if it is kept there.
    pub memory: Option<NonZeroU64>,
    /// Directories in the volume that other volumes are mounted on.
    pub nested: BTreeSet<String>,
}

/// One source of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadSource {
    /// Values of an object.
    Object {
        /// Which.
        key: ObjectKey,
        /// Those values; all if there are none.
        items: Vec<Item>,
        /// It, or a value, may be missing.
        optional: bool,
        /// Mode of files that name none.
        default_mode: u32,
    },
    /// Something about the pod.
    Pod {
        /// Path of the file.
        path: String,
        /// Its content, or why there is none.
        text: Result<String, String>,
        /// Its mode.
        mode: u32,
    },
    /// A token of the pod's service account.
    Token {
        /// Which.
        key: ObjectKey,
        /// Path of the file.
        path: String,
        /// Its mode.
        mode: u32,
        /// Who may read it, if not root alone.
        owner: Option<u32>,
    },
    /// Certificates that the pod trusts.
    Trust {
        /// Which.
        key: ObjectKey,
        /// Path of the file.
        path: String,
        /// There may be none.
        optional: bool,
        /// Its mode.
        mode: u32,
        /// Who may read it, if not root alone.
        owner: Option<u32>,
    },
    /// A certificate of the pod, and its key.
    Certificate {
        /// Which.
        key: ObjectKey,
        /// Paths of files, and which values each holds.
        files: Vec<(String, &'static [&'static str])>,
        /// Their mode.
        mode: u32,
        /// Who may read them, if not root alone.
        owner: Option<u32>,
    },
    /// Something that nobody here can get.
    Refused(String),
}

/// A value and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Key of the value.
    pub key: String,
    /// Path of the file.
    pub path: String,
    /// Its mode.
    pub mode: u32,
}

/// The files of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub payload: Arc<Payload>,
    /// A hash of paths, modes and data.
    pub digest: String,
}

impl PayloadSpec {
    /// The objects that the files come from.
    pub(super) fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.sources.iter().filter_map(|source| match source {
            PayloadSource::Object { key, .. }
            | PayloadSource::Token { key, .. }
            | PayloadSource::Trust { key, .. }
            | PayloadSource::Certificate { key, .. } => Some(key),
            PayloadSource::Pod { .. } | PayloadSource::Refused(_) => None,
        })
    }

    /// The files, or everything that keeps them from being made.
    pub(super) fn content(
        &self,
        lookup: impl Fn(&ObjectKey) -> Result<Option<Arc<ConfigObject>>, String>,
    ) -> Result<Content, String> {
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        for source in &self.sources {
            match source {
                PayloadSource::Refused(why) => errors.push(why.clone()),
                PayloadSource::Pod { path, text, mode } => match text {
                    Ok(text) => files.push((path.clone(), file(text.as_bytes(), *mode))),
                    Err(error) => errors.push(error.clone()),
                },
                PayloadSource::Object { key, items, optional, default_mode } => {
                    let found = lookup(key).and_then(|object| {
                        of_object(key, object.as_deref(), items, *optional, *default_mode)
                    });
                    match found {
                        Ok(some) => files.extend(some),
                        Err(error) => errors.push(error),
                    }
                }
                PayloadSource::Token { key, path, mode, owner } => {
                    let found = lookup(key).and_then(|object| {
                        let object = object.ok_or("it was not given")?;
                        Ok(object.value(TOKEN).map(<[u8]>::to_vec))
                    });
                    match found {
                        // It is withheld: the file comes with the token.
                        Ok(None) => {}
                        Ok(Some(data)) => {
                            let file = PayloadFile { data, mode: *mode, owner: *owner };
                            files.push((path.clone(), file));
                        }
                        Err(error) => errors.push(format!("failed to fetch token: {error}")),
                    }
                }
                PayloadSource::Trust { key, path, optional, mode, owner } => {
                    let found =
                        lookup(key).and_then(|object| trusted(key, object.as_deref(), *optional));
                    match found {
                        Ok(data) => {
                            let file = PayloadFile { data, mode: *mode, owner: *owner };
                            files.push((path.clone(), file));
                        }
                        Err(error) => errors.push(error),
                    }
                }
                PayloadSource::Certificate { key, files: paths, mode, owner } => {
                    match lookup(key).and_then(|object| object.ok_or_else(not_issued)) {
                        Ok(object) => files.extend(paths.iter().map(|(path, values)| {
                            let parts = values.iter().filter_map(|value| object.value(value));
                            let data = parts.flatten().copied().collect();
                            (path.clone(), PayloadFile { data, mode: *mode, owner: *owner })
                        })),
                        Err(error) => errors.push(error),
                    }
                }
            }
        }
        match errors.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            many => return Err(format!("[{}]", many.join(", "))),
        }
        let payload = Payload::new(files).map_err(|error| error.to_string())?;
        Ok(Content { digest: digest(&payload), payload: Arc::new(payload) })
    }
}

fn file(data: &[u8], mode: u32) -> PayloadFile {
    PayloadFile { data: data.to_vec(), mode, owner: None }
}

/// An empty file only for who can do without.
fn trusted(
    key: &ObjectKey,
    object: Option<&ConfigObject>,
    optional: bool,
) -> Result<Vec<u8>, String> {
    match object.and_then(|object| object.value(ANCHORS)) {
        Some(anchors) => Ok(anchors.to_vec()),
        None if optional => Ok(Vec::new()),
        None => Err(TrustAsk::of(key).map(|ask| ask.missing()).unwrap_or_default()),
    }
}

fn not_issued() -> String {
    "credential bundle is not issued yet".to_owned()
}

fn of_object(
    key: &ObjectKey,
    object: Option<&ConfigObject>,
    items: &[Item],
    optional: bool,
    default_mode: u32,
) -> Result<Vec<(String, PayloadFile)>, String> {
    let Some(object) = object else {
        let missing = format!("{} {:?} not found", key.kind.resource(), key.name);
        return if optional { Ok(Vec::new()) } else { Err(missing) };
    };
    if items.is_empty() {
        let all = object.values().map(|(name, data)| (name.clone(), file(data, default_mode)));
        return Ok(all.collect());
    }
    let mut files = Vec::new();
    for Item { key: wanted, path, mode } in items {
        match object.value(wanted) {
            Some(data) => files.push((path.clone(), file(data, *mode))),
            None if optional => {}
            None => {
                return Err(match key.kind {
                    ObjectKind::ConfigMap => {
                        format!("configmap references non-existent config key: {wanted}")
                    }
                    _ => format!("references non-existent secret key: {wanted}"),
                });
            }
        }
    }
    Ok(files)
}

fn digest(payload: &Payload) -> String {
    let mut hash = Sha256::new();
    for (path, PayloadFile { data, mode, .. }) in payload.files() {
        // Lengths first: what ends one part cannot begin the next.
        hash.update((path.len() as u64).to_be_bytes());
        hash.update(path.as_bytes());
        hash.update(mode.to_be_bytes());
        hash.update((data.len() as u64).to_be_bytes());
        hash.update(data);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Directories in a volume that other mounts of the same container lie on: in a
/// volume that can only be read, the runtime could not make them.
pub(super) fn nested(volume: &str, mounts: &[(&str, &str)]) -> BTreeSet<String> {
    let clean = |path: &str| {
        let parts: Vec<&str> =
            path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        parts.join("/")
    };
    let own = mounts.iter().filter(|(name, _)| *name == volume).map(|(_, path)| clean(path));
    let mut found = BTreeSet::new();
    for base in own {
        let below = mounts.iter().filter_map(|(_, path)| {
            clean(path).strip_prefix(&base)?.strip_prefix('/').map(str::to_owned)
        });
        let below: BTreeSet<String> = below.collect();
        // What lies below another of them is that one's.
        let outer = |path: &&String| {
            !below.iter().any(|other| {
                path.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        found.extend(below.iter().filter(outer).cloned());
    }
    found
}
