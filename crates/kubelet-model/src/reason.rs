//! Reasons that users see. Their texts are a compatibility contract.

use std::fmt;

/// Why a container waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
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
    /// The runtime refused to create it.
    CreateContainerError,
    /// The runtime could not start it.
    RunContainerError,
    /// What it should do first after its start failed.
    PostStartHookError,
}

impl WaitReason {
    /// The text in `state.waiting.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContainerCreating => "ContainerCreating",
            Self::PodInitializing => "PodInitializing",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::ImageInspectError => "ImageInspectError",
            Self::InvalidImageName => "InvalidImageName",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::SignatureValidationFailed => "SignatureValidationFailed",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
            Self::RunContainerError => "RunContainerError",
            Self::PostStartHookError => "PostStartHookError",
        }
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
