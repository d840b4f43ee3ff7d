//! To whom is told what happens while a volume is made or undone.

use kubelet_model::{EventObject, EventType, ObjectKey, ObjectKind};

use super::super::layout::VolumeName;
use super::Means;
use crate::events::Recorder;
use crate::ports::VolumeError;
use crate::progress::CallUnderWay;

/// What users hear besides whether it worked.
pub(in super::super) struct Tells<'a> {
    /// Takes events.
    pub recorder: &'a Recorder,
    /// The pod, if it is still wanted.
    pub object: Option<&'a EventObject>,
    /// The operation under way.
    pub call: &'a CallUnderWay,
    /// What it does, in plain words.
    pub what: &'a str,
}

impl Tells<'_> {
    /// What is being done within the operation.
    pub(super) fn does(&self, how: &str) {
        self.call.does(format!("{}: {how}", self.what));
    }

    /// Something is wrong with a PersistentVolume.
    fn warn_of_volume(&self, volume: &EventObject, reason: &'static str, message: String) {
        self.recorder.record(volume, EventType::Warning, reason, message);
    }

    /// Something is wrong, though it goes on.
    pub(super) fn warn(&self, reason: &'static str, message: String) {
        if let Some(object) = self.object {
            self.recorder.record(object, EventType::Warning, reason, message);
        }
    }
}

impl Means<'_> {
    /// Says so, if a PersistentVolume has another file system than it should have: who
    /// made it may not see the pods that use it.
    pub(super) fn tell_of_mismatch(&self, volume: &VolumeName, error: &VolumeError) {
        let Some(text) = mismatch(volume, error) else { return };
        let key = ObjectKey::new(ObjectKind::PersistentVolume, "", volume.as_str());
        let uid = self.objects.get(&key).map(|object| object.uid.clone()).unwrap_or_default();
        let object = EventObject::PersistentVolume { name: volume.to_string(), uid };
        self.tells.warn_of_volume(&object, "FailedMountOnFilesystemMismatch", text);
    }
}

/// What is told of a PersistentVolume that could not be mounted, if that is why.
fn mismatch(volume: &VolumeName, error: &VolumeError) -> Option<String> {
    matches!(error, VolumeError::OtherFileSystem { .. })
        .then(|| format!("MountVolume failed for volume \"{volume}\" : {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_file_system_is_told_of_the_volume() {
        let volume = VolumeName::new("pv").expect("a good name");
        let (found, wanted) = ("xfs".to_owned(), "ext4".to_owned());
        let other = VolumeError::OtherFileSystem { device: "/dev/x".into(), found, wanted };
        assert_eq!(
            mismatch(&volume, &other).unwrap(),
            "MountVolume failed for volume \"pv\" : will not use /dev/x: it holds xfs, and the \
             volume is to be ext4"
        );
        let unreadable = VolumeError::Disk { device: "/dev/x".into(), why: "no".to_owned() };
        assert_eq!(mismatch(&volume, &unreadable), None);
    }
}
