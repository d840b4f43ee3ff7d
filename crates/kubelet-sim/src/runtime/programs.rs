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
}

impl Program {
    /// The image name that stands for this program.
    pub fn image(self) -> String {
        match self {
            Self::Run { term_ms } => format!("sim/run-{term_ms}:v1"),
            Self::Deaf => "sim/deaf-0:v1".to_owned(),
            Self::Exit { code, after_ms } => format!("sim/exit{code}-{after_ms}:v1"),
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
            exit => Some(Self::Exit {
                code: exit.strip_prefix("exit")?.parse().ok()?,
                after_ms: number,
            }),
        }
    }

    /// When and how it ends by itself.
    pub fn own_exit(self) -> Option<(Duration, i32)> {
        match self {
            Self::Exit { code, after_ms } => {
                Some((Duration::from_millis(after_ms.into()), code.into()))
            }
            Self::Run { .. } | Self::Deaf => None,
        }
    }

    /// How long after SIGTERM it ends, and how; a program that outlasts the
    /// grace period is killed.
    pub fn on_term(self, grace: Duration) -> (Duration, i32) {
        let reaction = match self {
            Self::Run { term_ms } => Some(Duration::from_millis(term_ms.into())),
            Self::Exit { .. } => Some(Duration::from_millis(100)),
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
        ] {
            assert_eq!(Program::of_image(&program.image()), Some(program));
        }
        assert_eq!(Program::of_image("docker.io/library/nginx"), None);
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
