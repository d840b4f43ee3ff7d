//! What the files of configMap, secret, downwardAPI and projected volumes hold.
//!
//! Pure: objects are looked up by a function. Errors are upstream's words.
//! Upstream: pkg/volume/{configmap,secret,downwardapi,projected},
//! pkg/volume/util/nested_volumes.go.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, KeyToPath, PodCertificateProjection,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kubelet_model::certificate::{CHAIN, CertificateAsk, KEY};
use kubelet_model::token::{TOKEN, TokenAsk};
use kubelet_model::trust::{ANCHORS, TrustAsk};
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind};
use mounts::publish::{Payload, PayloadFile};
use sha2::{Digest, Sha256};

use super::layout::PluginName;
use crate::container_manager::allocatable::Allocatable;
use crate::runtime_manager::{file_field, file_resource};

/// Mode of a file that names none, where nobody filled in the default.
const FILE_MODE: u32 = 0o644;
/// How long a token holds whose pod does not say.
const TOKEN_SECONDS: i64 = 3600;

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

/// The sources of a volume; `None` if it is of another kind.
pub(super) fn sources_of(
    volume: &Volume,
    pod: &DesiredPod,
    node: Allocatable,
) -> Option<(PayloadKind, Vec<PayloadSource>)> {
    let from = From { pod, node, volume: &volume.name };
    if let Some(map) = &volume.config_map {
        let mode = mode_or(map.default_mode, FILE_MODE);
        let source = from.object(ObjectKind::ConfigMap, &map.name, &map.items, map.optional, mode);
        return Some((PayloadKind::ConfigMap, vec![source]));
    }
    if let Some(secret) = &volume.secret {
        let mode = mode_or(secret.default_mode, FILE_MODE);
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let source = from.object(ObjectKind::Secret, name, &secret.items, secret.optional, mode);
        return Some((PayloadKind::Secret, vec![source]));
    }
    if let Some(downward) = &volume.downward_api {
        let mode = mode_or(downward.default_mode, FILE_MODE);
        return Some((PayloadKind::DownwardApi, from.files(&downward.items, mode)));
    }
    let projected = volume.projected.as_ref()?;
    let mode = mode_or(projected.default_mode, FILE_MODE);
    let sources = projected.sources.iter().flatten().enumerate();
    let sources = sources.flat_map(|(index, one)| from.projection(index, one, mode));
    Some((PayloadKind::Projected, sources.collect()))
}

/// What sources are made from.
struct From<'a> {
    pod: &'a DesiredPod,
    node: Allocatable,
    volume: &'a str,
}

impl From<'_> {
    fn object(
        &self,
        kind: ObjectKind,
        name: &str,
        items: &Option<Vec<KeyToPath>>,
        optional: Option<bool>,
        default_mode: u32,
    ) -> PayloadSource {
        let item = |item: &KeyToPath| Item {
            key: item.key.clone(),
            path: item.path.clone(),
            mode: mode_or(item.mode, default_mode),
        };
        PayloadSource::Object {
            key: ObjectKey::new(kind, self.pod.namespace(), name),
            items: items.iter().flatten().map(item).collect(),
            optional: optional.unwrap_or(false),
            default_mode,
        }
    }

    fn files(&self, items: &Option<Vec<DownwardAPIVolumeFile>>, mode: u32) -> Vec<PayloadSource> {
        let file = |item: &DownwardAPIVolumeFile| {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => file_field(self.pod, &field.field_path),
                (None, Some(resource)) => file_resource(self.pod.spec(), resource, self.node),
                (None, None) => Ok(String::new()),
            };
            PayloadSource::Pod { path: item.path.clone(), text, mode: mode_or(item.mode, mode) }
        };
        items.iter().flatten().map(file).collect()
    }

    fn token(&self, of: &ServiceAccountTokenProjection, mode: u32) -> PayloadSource {
        let account = self.pod.spec().service_account_name.as_deref();
        let ask = TokenAsk {
            namespace: self.pod.namespace().to_owned(),
            account: account.unwrap_or("default").to_owned(),
            audience: of.audience.clone().unwrap_or_default(),
            seconds: of.expiration_seconds.unwrap_or(TOKEN_SECONDS),
            pod: self.pod.name().to_owned(),
            uid: self.pod.uid().as_str().to_owned(),
        };
        let (mode, owner) = token_access(self.pod, mode);
        PayloadSource::Token { key: ask.key(), path: of.path.clone(), mode, owner }
    }

    fn trust(&self, of: &ClusterTrustBundleProjection, mode: u32) -> PayloadSource {
        let Some(ask) = TrustAsk::of_source(of) else {
            let why = "ClusterTrustBundle projection requires either name or signerName to be set";
            return PayloadSource::Refused(why.to_owned());
        };
        let (mode, owner) = token_access(self.pod, mode);
        let (path, optional) = (of.path.clone(), of.optional.unwrap_or(false));
        PayloadSource::Trust { key: ask.key(), path, optional, mode, owner }
    }

    fn certificate(&self, index: usize, of: &PodCertificateProjection, mode: u32) -> PayloadSource {
        let ask = CertificateAsk::of_source(self.pod, self.volume, index, of);
        let files: [(&Option<String>, &'static [&'static str]); 3] = [
            (&of.credential_bundle_path, &[KEY, CHAIN]),
            (&of.key_path, &[KEY]),
            (&of.certificate_chain_path, &[CHAIN]),
        ];
        let files = files.into_iter().filter_map(|(path, values)| {
            Some((path.clone().filter(|path| !path.is_empty())?, values))
        });
        let (mode, owner) = token_access(self.pod, mode);
        PayloadSource::Certificate { key: ask.key(), files: files.collect(), mode, owner }
    }

    fn projection(&self, index: usize, source: &VolumeProjection, mode: u32) -> Vec<PayloadSource> {
        if let Some(of) = &source.secret {
            return vec![self.object(ObjectKind::Secret, &of.name, &of.items, of.optional, mode)];
        }
        if let Some(of) = &source.config_map {
            return vec![self.object(
                ObjectKind::ConfigMap,
                &of.name,
                &of.items,
                of.optional,
                mode,
            )];
        }
        if let Some(of) = &source.downward_api {
            return self.files(&of.items, mode);
        }
        let asks = [
            (
                "serviceAccountToken",
                source.service_account_token.as_ref().map(|of| self.token(of, mode)),
            ),
            (
                "clusterTrustBundle",
                source.cluster_trust_bundle.as_ref().map(|of| self.trust(of, mode)),
            ),
            (
                "podCertificate",
                source.pod_certificate.as_ref().map(|of| self.certificate(index, of, mode)),
            ),
        ];
        let asks = asks.into_iter().filter_map(|(name, source)| Some((name, source?)));
        let of_static = |name: &str| {
            let why = format!("a projected {name} needs an API server; remove the source");
            PayloadSource::Refused(why)
        };
        let is_static = self.pod.is_static();
        asks.map(|(name, source)| if is_static { of_static(name) } else { source }).collect()
    }
}

/// The user and the mode of a file that proves who the pod is, or whom it trusts: whoever
/// runs the pod's containers may read it, and nobody else. Upstream: pkg/volume/projected.
fn token_access(pod: &DesiredPod, mode: u32) -> (u32, Option<u32>) {
    let spec = pod.spec();
    if spec.security_context.as_ref().is_some_and(|context| context.fs_group.is_some()) {
        return (0o600, None);
    }
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let init = spec.init_containers.iter().flatten();
    let mut users = spec.containers.iter().chain(init).map(|container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod)
    });
    let first = users.next().flatten();
    match first.filter(|first| users.all(|user| user == Some(*first))) {
        Some(user) => (0o600, u32::try_from(user).ok()),
        None => (mode, None),
    }
}

fn mode_or(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
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
