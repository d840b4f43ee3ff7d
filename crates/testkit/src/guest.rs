//! The virtual machine of `make vm`.
//!
//! Servers for NFS and iSCSI are the whole machine's: tests start them only where nobody
//! else can have one.

/// Set in the guest.
const VARIABLE: &str = "KLET_VM";

/// Shows that this is the guest.
#[derive(Debug)]
pub struct Guest {
    test: &'static str,
}

impl Guest {
    /// Says that the test is skipped if this is not the guest.
    pub fn here(test: &'static str) -> Option<Self> {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
            return Some(Self { test });
        }
        eprintln!("SKIPPED {test}: it needs a machine of its own; `make vm` runs it in one");
        None
    }

    /// Says that the test is skipped because the kernel lacks something.
    pub fn lacks(&self, what: &str, error: &anyhow::Error) {
        eprintln!("SKIPPED {}: the kernel has no {what}: {error:#}", self.test);
    }
}
