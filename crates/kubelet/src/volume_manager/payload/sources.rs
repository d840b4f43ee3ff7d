//! What a volume's spec says of its files: where each comes from, and who may read it.
//!
//! Pure. Upstream: collectData in pkg/volume/projected, and its like of the other kinds.

use k8s_openapi::api::core::v1::{
    ClusterTrustBundleProjection, DownwardAPIVolumeFile, KeyToPath, PodCertificateProjection,
    PodSpec, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use kubelet_model::certificate::{CHAIN, CertificateAsk, KEY};
use kubelet_model::token::TokenAsk;
use kubelet_model::trust::TrustAsk;
use kubelet_model::{DesiredPod, ObjectKey, ObjectKind};

use super::{Item, PayloadKind, PayloadSource};
use crate::container_manager::allocatable::Allocatable;
use crate::runtime_manager::{file_field, file_resource};

/// Mode of a file that names none, where nobody filled in the default.
const FILE_MODE: u32 = 0o644;
/// How long a token holds whose pod does not say.
const TOKEN_SECONDS: i64 = 3600;

/// The sources of a volume; `None` if it is of another kind.
pub(in super::super) fn sources_of(
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
    let user = only_user(spec);
    // A group gets its share when the volume is given to it.
    let has_group =
        spec.security_context.as_ref().is_some_and(|context| context.fs_group.is_some());
    let mode = if has_group || user.is_some() { 0o600 } else { mode };
    (mode, user.and_then(|user| u32::try_from(user).ok()))
}

/// The user that all containers run as, if each names one, or the pod does. Upstream:
/// FsUserFrom in pkg/volume/util.
fn only_user(spec: &PodSpec) -> Option<i64> {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let init = spec.init_containers.iter().flatten();
    let plain = spec.containers.iter().chain(init).map(|container| &container.security_context);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|container| &container.security_context);
    let mut users = plain.chain(ephemeral).map(|context| {
        let own = context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod)
    });
    let first = users.next().flatten()?;
    users.all(|user| user == Some(first)).then_some(first)
}

fn mode_or(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(default)
}
