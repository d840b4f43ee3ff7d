//! Reasons that users see. Their texts are a compatibility contract.

use std::fmt;

/// Declares the reasons once: the variant's name is the text, and the list of all
/// of them cannot miss one.
macro_rules! wait_reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a container waits. Statuses are generated from these and from
        /// nothing else.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum WaitReason {
            $($(#[$doc])* $name,)*
        }

        impl WaitReason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The text in `state.waiting.reason`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

wait_reasons! {
    /// The pod's sandbox or the container is being made.
    ContainerCreating,
    /// An init container before it has not finished.
    PodInitializing,
    /// It keeps ending and waits before the next start.
    CrashLoopBackOff,
    /// The image could not be pulled just now.
    ErrImagePull,
    /// The image could not be pulled; the next try is later.
    ImagePullBackOff,
    /// Policy `Never`, and the image is not here.
    ErrImageNeverPull,
    /// The runtime could not look the image up.
    ImageInspectError,
    /// The image's name makes no sense.
    InvalidImageName,
    /// The registry cannot be reached.
    RegistryUnavailable,
    /// The image's signature does not hold.
    SignatureValidationFailed,
    /// Its environment, user or files cannot be worked out.
    CreateContainerConfigError,
    /// The node could not give it its processors or memory before it was created.
    /// Upstream's managers of these, on Linux, never fail there; statuses of others may say so.
    PreCreateHookError,
    /// The runtime refused to create it.
    CreateContainerError,
    /// The same before its start.
    PreStartHookError,
    /// The runtime could not start it.
    RunContainerError,
    /// What it should do first after its start failed.
    PostStartHookError,
    /// It was removed because a container's end makes the whole pod begin anew.
    RestartingAllContainers,
}

impl WaitReason {
    /// The reason behind the text of a status.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }

    /// It is the image that is missing.
    pub fn is_of_image(self) -> bool {
        matches!(
            self,
            Self::ErrImagePull
                | Self::ImagePullBackOff
                | Self::ErrImageNeverPull
                | Self::ImageInspectError
                | Self::InvalidImageName
                | Self::RegistryUnavailable
                | Self::SignatureValidationFailed
        )
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a container waits, in a reason and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The reason.
    pub reason: WaitReason,
    /// The sentence.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::WaitReason;

    #[test]
    fn every_reason_is_found_by_its_text() {
        for reason in WaitReason::ALL {
            assert_eq!(WaitReason::parse(reason.as_str()), Some(*reason));
        }
        assert_eq!(WaitReason::parse("PreCreateHookError"), Some(WaitReason::PreCreateHookError));
        assert_eq!(WaitReason::parse("PreStopHookError"), None);
        assert_eq!(WaitReason::RestartingAllContainers.as_str(), "RestartingAllContainers");
    }
}
