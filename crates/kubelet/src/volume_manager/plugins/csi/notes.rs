//! The notes beside volumes: which driver made what, so that it can be undone.

use std::path::{Path, PathBuf};

use super::super::super::csi::{BadVolData, CsiSpec, VOL_DATA_BYTES_MAX, VolData, attachment_id};
use super::super::super::layout::{PluginName, VolumeName};
use super::super::Means;
use super::CsiError;

/// Mode of a volume's directory, as upstream's.
pub(super) const MODE: u32 = 0o750;
/// How a note tells a volume that outlives its pod.
pub(super) const PERSISTENT: &str = "Persistent";

/// Where a volume and its note lie.
pub(super) struct Paths {
    pub dir: PathBuf,
    pub target: PathBuf,
    pub note: PathBuf,
}

impl Paths {
    pub fn of(means: &Means<'_>, name: &VolumeName) -> Self {
        let dir = means.layout.volume_dir(&PluginName::csi(), name);
        Self { target: dir.join("mount"), note: dir.join("vol_data.json"), dir }
    }

    pub fn target_text(&self) -> Result<&str, CsiError> {
        self.target.to_str().ok_or_else(|| CsiError::NotUtf8(self.target.clone()))
    }
}

/// The note, if there is one.
pub(super) fn read(
    means: &Means<'_>,
    path: &Path,
) -> Result<Option<Result<VolData, BadVolData>>, CsiError> {
    match means.fs.read(path, VOL_DATA_BYTES_MAX) {
        Ok(content) => Ok(Some(VolData::parse(&content))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let (path, why) = (path.to_owned(), error.to_string());
            Err(CsiError::Note { what: "read", path, why })
        }
    }
}

/// Whether nothing is noted of the volume yet. Another's note is no place for it.
pub(super) fn is_new(means: &Means<'_>, paths: &Paths, spec: &CsiSpec) -> Result<bool, CsiError> {
    match read(means, &paths.note)? {
        Some(Ok(data)) if data.is_of(&spec.driver, &spec.handle) => Ok(false),
        Some(Ok(VolData { driver_name: driver, volume_handle: handle, .. })) => {
            Err(CsiError::Taken { dir: paths.dir.clone(), driver, handle })
        }
        Some(Err(_)) => Ok(false),
        None => Ok(true),
    }
}

/// Notes a volume of a pod, and makes the directory for it.
pub(super) async fn write(
    means: &Means<'_>,
    paths: &Paths,
    name: &VolumeName,
    spec: &CsiSpec,
) -> Result<(), CsiError> {
    means.host.make_dir(&paths.dir, MODE).await?;
    let mode = if spec.persistent.is_some() { PERSISTENT } else { "Ephemeral" };
    let data = VolData {
        spec_vol_id: name.as_str().to_owned(),
        volume_handle: spec.handle.clone(),
        driver_name: spec.driver.clone(),
        node_name: means.node_name.to_owned(),
        volume_lifecycle_mode: mode.to_owned(),
        attachment_id: attachment_id(&spec.handle, &spec.driver, means.node_name),
        selinux_label: spec.label().unwrap_or_default().to_owned(),
    };
    write_to(means, &paths.note, &data)
}

/// Writes a note, whole or not at all.
pub(super) fn write_to(means: &Means<'_>, path: &Path, data: &VolData) -> Result<(), CsiError> {
    let failed = |why: std::io::Error| CsiError::Note {
        what: "write",
        path: path.into(),
        why: why.to_string(),
    };
    means.fs.write(path, &data.to_json()).map_err(failed)
}
