//! Defaults of volumes.

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Volume};

use super::super::volumes::source_names;
use super::{pull_policy, text};

/// Mode of files that a volume writes.
const FILE_MODE: i32 = 0o644;

pub(super) fn default_volume(volume: &mut Volume) {
    if source_names(volume).is_empty() {
        volume.empty_dir.get_or_insert_default();
    }
    if let Some(image) = &mut volume.image {
        let policy = pull_policy(image.reference.as_deref().unwrap_or_default());
        text(&mut image.pull_policy, policy);
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        downward.items.iter_mut().flatten().for_each(default_downward);
    }
    default_projected(volume);
    default_network(volume);
    if let Some(ephemeral) = &mut volume.ephemeral
        && let Some(template) = &mut ephemeral.volume_claim_template
    {
        template.spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
    }
}

fn default_projected(volume: &mut Volume) {
    let Some(projected) = &mut volume.projected else {
        return;
    };
    projected.default_mode.get_or_insert(FILE_MODE);
    for source in projected.sources.iter_mut().flatten() {
        if let Some(downward) = &mut source.downward_api {
            downward.items.iter_mut().flatten().for_each(default_downward);
        }
        if let Some(token) = &mut source.service_account_token {
            token.expiration_seconds.get_or_insert(3_600);
        }
    }
}

fn default_downward(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        text(&mut field.api_version, "v1");
    }
}

fn default_network(volume: &mut Volume) {
    if let Some(iscsi) = &mut volume.iscsi {
        text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        text(&mut rbd.pool, "rbd");
        text(&mut rbd.user, "admin");
        text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        disk.kind.get_or_insert_with(|| "Shared".to_owned());
        disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
        disk.read_only.get_or_insert(false);
    }
    if let Some(scale_io) = &mut volume.scale_io {
        text(&mut scale_io.storage_mode, "ThinProvisioned");
        text(&mut scale_io.fs_type, "xfs");
    }
}
