//! Newtypes for the identifiers that must never be mixed up.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text of an id.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

id!(
    /// A pod's uid: unique over time, unlike its name.
    PodUid
);
id!(
    /// A container's name inside its pod.
    ContainerName
);
id!(
    /// The runtime's id of one container instance.
    ContainerId
);
id!(
    /// The runtime's id of one sandbox instance.
    SandboxId
);
id!(
    /// `<name>_<namespace>`: at most one static pod of a full name runs at a time.
    FullName
);

impl FullName {
    /// The full name of a pod.
    pub fn of(name: &str, namespace: &str) -> Self {
        Self::new(format!("{name}_{namespace}"))
    }

    /// Name and namespace; `None` if it does not have two non-empty parts.
    pub fn parts(&self) -> Option<(&str, &str)> {
        let (name, namespace) = self.0.rsplit_once('_')?;
        (!name.is_empty() && !namespace.is_empty()).then_some((name, namespace))
    }
}
