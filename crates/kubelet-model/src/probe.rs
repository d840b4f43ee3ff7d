//! Results of probes, as plans and statuses read them.
//!
//! Plain data, keyed by container instance: a restarted container starts with
//! no result. The probe manager writes; everyone else reads a snapshot.

use std::collections::BTreeMap;

use crate::ids::ContainerId;

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// Has the container started? Holds back the other two until it has.
    Startup,
    /// May it be sent traffic?
    Readiness,
    /// Must it be restarted?
    Liveness,
}

impl ProbeKind {
    /// The name in event messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// What enough probes in a row have said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// Well.
    Success,
    /// Not well.
    Failure,
    /// Not known yet: a startup probe that has not finished.
    Unknown,
}

/// The stored results of one pod's containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProbeResults(BTreeMap<(ContainerId, ProbeKind), ProbeResult>);

impl ProbeResults {
    /// The stored result for an instance, if there is one.
    pub fn get(&self, id: &ContainerId, kind: ProbeKind) -> Option<ProbeResult> {
        self.0.get(&(id.clone(), kind)).copied()
    }
    /// Stores a result; true if it differs from the one before.
    pub fn set(&mut self, id: &ContainerId, kind: ProbeKind, result: ProbeResult) -> bool {
        self.0.insert((id.clone(), kind), result) != Some(result)
    }
    /// Forgets a result; true if there was one.
    pub fn forget(&mut self, id: &ContainerId, kind: ProbeKind) -> bool {
        self.0.remove(&(id.clone(), kind)).is_some()
    }
    /// Whether enough probes in a row have failed.
    pub fn failed(&self, id: &ContainerId, kind: ProbeKind) -> bool {
        self.get(id, kind) == Some(ProbeResult::Failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_is_news() {
        let (a, b) = (ContainerId::new("a"), ContainerId::new("b"));
        let mut results = ProbeResults::default();
        assert!(results.set(&a, ProbeKind::Liveness, ProbeResult::Success));
        assert!(!results.set(&a, ProbeKind::Liveness, ProbeResult::Success));
        assert!(results.set(&a, ProbeKind::Liveness, ProbeResult::Failure));
        assert!(results.failed(&a, ProbeKind::Liveness));
        assert!(!results.failed(&a, ProbeKind::Startup));
        assert!(!results.failed(&b, ProbeKind::Liveness));
        assert!(results.forget(&a, ProbeKind::Liveness));
        assert!(!results.forget(&a, ProbeKind::Liveness));
    }
}
