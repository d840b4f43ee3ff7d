//! What a container does once it runs, told by its image's name.
//!
//! Plain data; the world's runtime acts on it.

use std::time::Duration;

/// The behaviour of a container's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// Runs until told to stop and ends `term_ms` after SIGTERM.
    Run {
        /// Milliseconds between SIGTERM and exit.
        term_ms: u32,
    },
    /// Runs until killed: ignores SIGTERM.
    Deaf,
    /// Exits by itself.
    Exit {
        /// Exit code.
        code: u8,
        /// Milliseconds after the start.
        after_ms: u32,
    },
    /// Exits by itself: with 1 while its restart count is below `fails`, then with 0.
    Flaky {
        /// How many instances fail.
        fails: u8,
        /// Milliseconds after the start.
        after_ms: u32,
    },
    /// Runs until told to stop, and answers probes well only for a while.
    Serve {
        /// Milliseconds after the start from which it answers well.
        from_ms: u32,
        /// Milliseconds after the start until which it does; 0 for ever.
        until_ms: u32,
        /// Milliseconds between SIGTERM and exit.
        term_ms: u32,
    },
}

impl Program {
    /// The image name that stands for this program.
    pub fn image(self) -> String {
        match self {
            Self::Run { term_ms } => format!("sim/run-{term_ms}:v1"),
            Self::Deaf => "sim/deaf-0:v1".to_owned(),
            Self::Exit { code, after_ms } => format!("sim/exit{code}-{after_ms}:v1"),
            Self::Flaky { fails, after_ms } => format!("sim/flaky{fails}-{after_ms}:v1"),
            Self::Serve { from_ms, until_ms, term_ms } => {
                format!("sim/serve{from_ms}.{until_ms}-{term_ms}:v1")
            }
        }
    }

    /// The program an image name stands for.
    pub fn of_image(image: &str) -> Option<Self> {
        let name = image.strip_prefix("sim/")?.strip_suffix(":v1")?;
        let (kind, number) = name.split_once('-')?;
        let number: u32 = number.parse().ok()?;
        match kind {
            "run" => Some(Self::Run { term_ms: number }),
            "deaf" => Some(Self::Deaf),
            other => Self::of_kind(other, number),
        }
    }

    fn of_kind(kind: &str, number: u32) -> Option<Self> {
        if let Some(code) = kind.strip_prefix("exit") {
            return Some(Self::Exit { code: code.parse().ok()?, after_ms: number });
        }
        if let Some(fails) = kind.strip_prefix("flaky") {
            return Some(Self::Flaky { fails: fails.parse().ok()?, after_ms: number });
        }
        let (from, until) = kind.strip_prefix("serve")?.split_once('.')?;
        let (from_ms, until_ms) = (from.parse().ok()?, until.parse().ok()?);
        Some(Self::Serve { from_ms, until_ms, term_ms: number })
    }

    /// When and how an instance with this restart count ends by itself.
    pub fn own_exit(self, attempt: u32) -> Option<(Duration, i32)> {
        match self {
            Self::Exit { code, after_ms } => {
                Some((Duration::from_millis(after_ms.into()), code.into()))
            }
            Self::Flaky { fails, after_ms } => {
                let code = i32::from(attempt < u32::from(fails));
                Some((Duration::from_millis(after_ms.into()), code))
            }
            Self::Run { .. } | Self::Deaf | Self::Serve { .. } => None,
        }
    }

    /// Does it answer probes well at this age?
    pub fn is_well(self, age: Duration) -> bool {
        match self {
            Self::Serve { from_ms, until_ms, .. } => {
                let until = Duration::from_millis(until_ms.into());
                age >= Duration::from_millis(from_ms.into()) && (until_ms == 0 || age < until)
            }
            _ => true,
        }
    }

    /// Has its answer been the same for `time` at this age?
    pub fn is_steady(self, age: Duration, time: Duration) -> bool {
        let Self::Serve { from_ms, until_ms, .. } = self else { return age >= time };
        let changes = [0, from_ms, until_ms].map(|ms| Duration::from_millis(ms.into()));
        changes.iter().all(|at| age < *at || age >= *at + time)
    }

    /// How long after SIGTERM it ends, and how; a program that outlasts the
    /// grace period is killed.
    pub fn on_term(self, grace: Duration) -> (Duration, i32) {
        let reaction = match self {
            Self::Run { term_ms } | Self::Serve { term_ms, .. } => {
                Some(Duration::from_millis(term_ms.into()))
            }
            Self::Exit { .. } | Self::Flaky { .. } => Some(Duration::from_millis(100)),
            Self::Deaf => None,
        };
        match reaction {
            Some(after) if after < grace => (after, 143),
            _ => (grace, 137),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_round_trip() {
        for program in [
            Program::Run { term_ms: 250 },
            Program::Deaf,
            Program::Exit { code: 3, after_ms: 1500 },
            Program::Flaky { fails: 2, after_ms: 1500 },
            Program::Serve { from_ms: 10, until_ms: 900, term_ms: 30 },
        ] {
            assert_eq!(Program::of_image(&program.image()), Some(program));
        }
        assert_eq!(Program::of_image("docker.io/library/nginx"), None);
    }

    #[test]
    fn a_server_is_well_for_a_while_and_a_flaky_one_succeeds_at_last() {
        let server = Program::Serve { from_ms: 1_000, until_ms: 9_000, term_ms: 0 };
        let well = [0, 1, 8, 9].map(|secs| server.is_well(Duration::from_secs(secs)));
        assert_eq!(well, [false, true, true, false]);
        assert!(!server.is_steady(Duration::from_secs(10), Duration::from_secs(5)));
        assert!(server.is_steady(Duration::from_secs(14), Duration::from_secs(5)));
        let flaky = Program::Flaky { fails: 2, after_ms: 0 };
        let codes = [0, 1, 2].map(|attempt| flaky.own_exit(attempt).map(|(_, code)| code));
        assert_eq!(codes, [Some(1), Some(1), Some(0)]);
    }

    #[test]
    fn grace_bounds_the_reaction() {
        let second = Duration::from_secs(1);
        assert_eq!(Program::Deaf.on_term(second), (second, 137));
        let slow = Program::Run { term_ms: 5_000 };
        assert_eq!(slow.on_term(second), (second, 137));
        assert_eq!(slow.on_term(second * 30).1, 143);
    }
}
