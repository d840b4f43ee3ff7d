//! Debug of messages that carry secrets: says which are set, never what they are.
//!
//! Besides the secrets themselves: mount flags, which may hold credentials,
//! and service account tokens, which travel in the volume context unless the
//! driver asks for them among the secrets.

use std::collections::BTreeMap;
use std::fmt;

use crate::csi::volume_capability::MountVolume;
use crate::csi::{NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};

/// Key of the volume context, or of the secrets, that holds the pod's tokens.
pub const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

const HIDDEN: &str = "(hidden)";

type Text = BTreeMap<String, String>;

/// Keys without their values.
struct Secrets<'a>(&'a Text);

impl fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, HIDDEN))).finish()
    }
}

/// Everything but the tokens.
struct Context<'a>(&'a Text);

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(key, value)| (key, if key == TOKENS_KEY { HIDDEN } else { value });
        let pairs = self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        f.debug_map().entries(pairs.map(shown)).finish()
    }
}

impl fmt::Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("publish_context", &self.publish_context)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("secrets", &Secrets(&self.secrets))
            .field("volume_context", &Context(&self.volume_context))
            .finish()
    }
}

impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("publish_context", &self.publish_context)
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("volume_capability", &self.volume_capability)
            .field("readonly", &self.readonly)
            .field("secrets", &Secrets(&self.secrets))
            .field("volume_context", &Context(&self.volume_context))
            .finish()
    }
}

impl fmt::Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("capacity_range", &self.capacity_range)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("secrets", &Secrets(&self.secrets))
            .finish()
    }
}

impl fmt::Debug for MountVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountVolume")
            .field("fs_type", &self.fs_type)
            .field("mount_flags", &format_args!("{} {HIDDEN}", self.mount_flags.len()))
            .field("volume_mount_group", &self.volume_mount_group)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::VolumeCapability;
    use crate::csi::volume_capability::AccessType;

    const SECRET: &str = "s3cret";

    fn one(key: &str, value: &str) -> Text {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    fn capability() -> Option<VolumeCapability> {
        let mount = MountVolume {
            fs_type: "cifs".to_owned(),
            mount_flags: vec![format!("password={SECRET}")],
            ..Default::default()
        };
        Some(VolumeCapability { access_type: Some(AccessType::Mount(mount)), ..Default::default() })
    }

    fn check(text: &str, shown: &[&str]) {
        assert!(!text.contains(SECRET), "{text}");
        for word in shown.iter().chain(&["vol-1", "cifs", "token-key"]) {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let volume_id = "vol-1".to_owned();
        let secrets = one("token-key", SECRET);
        let mut volume_context = one(TOKENS_KEY, SECRET);
        volume_context.insert("pool".to_owned(), "fast".to_owned());
        let stage = NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            volume_capability: capability(),
            secrets: secrets.clone(),
            volume_context: volume_context.clone(),
            ..Default::default()
        };
        check(&format!("{stage:?}"), &["fast", TOKENS_KEY]);
        let publish = NodePublishVolumeRequest {
            volume_id: volume_id.clone(),
            volume_capability: capability(),
            secrets: secrets.clone(),
            volume_context,
            ..Default::default()
        };
        check(&format!("{publish:?}"), &["fast", TOKENS_KEY]);
        let expand = NodeExpandVolumeRequest {
            volume_id,
            volume_capability: capability(),
            secrets,
            ..Default::default()
        };
        check(&format!("{expand:?}"), &[]);
    }
}
