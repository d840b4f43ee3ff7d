//! Feature gates: which exist, which are on.
//!
//! A set of gates is a value passed to whoever decides by it, never a global.
//! Upstream: component-base/featuregate.

use std::collections::BTreeMap;

mod table;

pub use table::{DEPENDENCIES, GATES};

/// How mature the feature behind a gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Off unless asked for; may go away.
    Alpha,
    /// Usually on.
    Beta,
    /// Finished; the gate will be removed.
    Ga,
    /// On its way out.
    Deprecated,
}

/// One feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// Its maturity.
    pub stage: Stage,
    /// Whether it is on when nobody says.
    pub default: bool,
    /// The default cannot be changed.
    pub locked: bool,
}

/// The gate of that name.
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|index| &GATES[index])
}

/// Why a setting of a gate is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("there is no feature gate {0:?} in Kubernetes 1.36")]
    Unknown(String),
    /// The default is final.
    #[error("feature gate {name} is locked to {default}")]
    Locked {
        /// The gate.
        name: String,
        /// Its fixed value.
        default: bool,
    },
    /// On, while something it needs is off.
    #[error("feature gate {name} is on but needs {missing}, which is off")]
    Dependency {
        /// The gate.
        name: String,
        /// What it needs.
        missing: String,
    },
}

/// Which features are on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureGates {
    changed: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// From explicit settings; those that are unknown or locked have no effect here
    /// and are reported by [`FeatureGates::check`].
    pub fn new(settings: &BTreeMap<String, bool>) -> Self {
        let mut changed = BTreeMap::new();
        for (special, stage) in [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)] {
            if let Some(&value) = settings.get(special) {
                let members = GATES.iter().filter(|gate| gate.stage == stage && !gate.locked);
                changed.extend(members.map(|gate| (gate.name.to_owned(), value)));
            }
        }
        for (name, &value) in settings {
            if find(name).is_some_and(|gate| !gate.locked) {
                changed.insert(name.clone(), value);
            }
        }
        Self { changed }
    }

    /// Whether the feature is on. A name that does not exist is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.changed
            .get(name)
            .copied()
            .unwrap_or_else(|| find(name).is_some_and(|gate| gate.default))
    }

    /// Everything wrong with these settings.
    pub fn check(settings: &BTreeMap<String, bool>) -> Vec<GateError> {
        let mut errors = Vec::new();
        for (name, &value) in settings {
            match find(name) {
                None => errors.push(GateError::Unknown(name.clone())),
                Some(gate) if gate.locked && gate.default != value => {
                    errors.push(GateError::Locked { name: name.clone(), default: gate.default });
                }
                Some(_) => {}
            }
        }
        let gates = Self::new(settings);
        for (name, needs) in DEPENDENCIES.iter().filter(|(name, _)| gates.enabled(name)) {
            let missing = needs.iter().filter(|need| !gates.enabled(need));
            errors.extend(missing.map(|need| GateError::Dependency {
                name: (*name).to_owned(),
                missing: (*need).to_owned(),
            }));
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn the_table_is_sorted_and_consistent() {
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
        for (name, needs) in DEPENDENCIES {
            assert!(find(name).is_some(), "{name}");
            assert!(needs.iter().all(|need| find(need).is_some()), "{name}");
        }
        assert_eq!(
            FeatureGates::check(&BTreeMap::new()),
            [],
            "the defaults must satisfy their dependencies"
        );
    }

    #[test]
    fn settings_override_defaults() {
        let gates =
            FeatureGates::new(&settings(&[("MemoryQoS", true), ("GracefulNodeShutdown", false)]));
        assert!(gates.enabled("MemoryQoS"));
        assert!(!gates.enabled("GracefulNodeShutdown"));
        assert!(gates.enabled("ContainerRestartRules"));
        assert!(!gates.enabled("EventedPLEG"));
        assert!(!gates.enabled("NoSuchGate"));
    }

    #[test]
    fn all_alpha_is_overridden_by_one_gate() {
        let gates = FeatureGates::new(&settings(&[("AllAlpha", true), ("EventedPLEG", false)]));
        assert!(gates.enabled("MemoryQoS"));
        assert!(!gates.enabled("EventedPLEG"));
    }

    #[test]
    fn reports_unknown_locked_and_broken_dependencies_at_once() {
        let errors = FeatureGates::check(&settings(&[
            ("Nope", true),
            ("NodeSwap", false),
            ("NodeDeclaredFeatures", false),
        ]));
        assert!(errors.contains(&GateError::Unknown("Nope".into())));
        assert!(errors.contains(&GateError::Locked { name: "NodeSwap".into(), default: true }));
        assert!(errors.contains(&GateError::Dependency {
            name: "ExtendWebSocketsToKubelet".into(),
            missing: "NodeDeclaredFeatures".into(),
        }));
    }

    #[test]
    fn locking_to_the_default_is_allowed() {
        assert_eq!(
            FeatureGates::check(&settings(&[("NodeSwap", true), ("GitRepoVolumeDriver", false)])),
            []
        );
    }
}
