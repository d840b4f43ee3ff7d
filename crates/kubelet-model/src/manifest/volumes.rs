//! Which sources a volume names.

use k8s_openapi::api::core::v1::Volume;

/// The volume's sources by field name; a good volume has exactly one.
pub(super) fn source_names(volume: &Volume) -> Vec<&'static str> {
    macro_rules! set {
        ($($name:literal $field:ident),* $(,)?) => {
            [$(volume.$field.is_some().then_some($name)),*]
        };
    }
    let sources = set![
        "awsElasticBlockStore" aws_elastic_block_store, "azureDisk" azure_disk,
        "azureFile" azure_file, "cephfs" cephfs, "cinder" cinder, "configMap" config_map,
        "csi" csi, "downwardAPI" downward_api, "emptyDir" empty_dir, "ephemeral" ephemeral,
        "fc" fc, "flexVolume" flex_volume, "flocker" flocker,
        "gcePersistentDisk" gce_persistent_disk, "gitRepo" git_repo, "glusterfs" glusterfs,
        "hostPath" host_path, "image" image, "iscsi" iscsi, "nfs" nfs,
        "persistentVolumeClaim" persistent_volume_claim,
        "photonPersistentDisk" photon_persistent_disk, "portworxVolume" portworx_volume,
        "projected" projected, "quobyte" quobyte, "rbd" rbd, "scaleIO" scale_io,
        "secret" secret, "storageos" storageos, "vsphereVolume" vsphere_volume,
    ];
    sources.into_iter().flatten().collect()
}
