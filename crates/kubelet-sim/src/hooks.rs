//! Hooks of a container: what manifests say of them, and how the world knows one
//! when the agent runs it.
//!
//! Plain data. A hook that is a command or a request carries its own outcome; one
//! that is a pause is not seen by anybody but the agent.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::container_template::ProbeRole;

/// How a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HookWay {
    /// A command in the container.
    #[default]
    Exec,
    /// A request to the container.
    Http,
    /// A pause of the agent's.
    Sleep,
}

/// A hook that ends with `code` after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// How it is run.
    pub way: HookWay,
    /// Exit code; a request is then not answered. A pause always succeeds.
    pub code: u8,
    /// How long it takes; [`Hook::HANGS`] for ever, a pause for the whole grace.
    pub takes_ms: u32,
}

/// What of a pod's manifest decides how its hooks are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HookRules {
    /// On the host's network ports may clash, so that hooks are commands.
    pub(crate) host_network: bool,
    /// No pause may be longer than the pod's grace period.
    pub(crate) grace_secs: u32,
}

impl Hook {
    /// A hook that never ends.
    pub const HANGS: u32 = u32::MAX;

    /// One that succeeds at once.
    pub const OK: Self = Self { way: HookWay::Exec, code: 0, takes_ms: 0 };

    /// The port at which requests of hooks ask, beside those of probes.
    pub(crate) fn port(container: &str) -> u16 {
        ProbeRole::Startup.port(container) + 3
    }

    /// How long the agent pauses for it without any sign, if it does.
    pub(crate) fn pause_secs(self, grace_secs: u32) -> Option<u32> {
        (self.way == HookWay::Sleep).then(|| self.takes_ms.div_ceil(1_000).min(grace_secs))
    }

    pub(crate) fn to_json(self, when: &str, container: &str, rules: HookRules) -> Value {
        let (code, takes) = (self.code.to_string(), self.takes_ms.to_string());
        if let Some(seconds) = self.pause_secs(rules.grace_secs) {
            return json!({"sleep": {"seconds": seconds}});
        }
        if self.way == HookWay::Http && !rules.host_network {
            let path = format!("/{when}/{code}/{takes}");
            return json!({"httpGet": {"port": Self::port(container), "path": path}});
        }
        json!({"exec": {"command": [when, code, takes]}})
    }

    pub(crate) fn random(rng: &mut StdRng, takes_max_ms: u32) -> Self {
        let way = match rng.random_range(0..4) {
            0..2 => HookWay::Exec,
            2 => HookWay::Http,
            _ => HookWay::Sleep,
        };
        let fails = way != HookWay::Sleep && rng.random_bool(0.25);
        let code = if fails { rng.random_range(1..=3) } else { 0 };
        let takes_ms = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..takes_max_ms) };
        Self { way, code, takes_ms }
    }
}

/// A probe or hook, as the container gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// A probe.
    Probe(ProbeRole),
    /// The hook after the start.
    PostStart(Hook),
    /// The hook before the stop.
    PreStop(Hook),
    /// Anything else succeeds at once.
    Other,
}

impl Command {
    pub(crate) fn parse(words: &[String]) -> Self {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let role = |word: &str| ProbeRole::ALL.into_iter().find(|r| r.word() == word);
        let found = match words[..] {
            ["probe", word] => role(word).map(Self::Probe),
            [when, code, takes] => Self::hook(HookWay::Exec, when, code, takes),
            _ => None,
        };
        found.unwrap_or(Self::Other)
    }

    /// The hook that a request's path stands for.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let [when, code, takes] = words[..] else { return None };
        Self::hook(HookWay::Http, when, code, takes)
    }

    fn hook(way: HookWay, when: &str, code: &str, takes: &str) -> Option<Self> {
        let hook = Hook { way, code: code.parse().ok()?, takes_ms: takes.parse().ok()? };
        match when {
            "post-start" => Some(Self::PostStart(hook)),
            "pre-stop" => Some(Self::PreStop(hook)),
            _ => None,
        }
    }

    /// How long it takes; `None` for ever.
    pub(crate) fn takes(self) -> Option<Duration> {
        match self {
            Self::PostStart(hook) | Self::PreStop(hook) => {
                (hook.takes_ms != Hook::HANGS).then(|| Duration::from_millis(hook.takes_ms.into()))
            }
            Self::Probe(_) | Self::Other => Some(Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: HookRules = HookRules { host_network: false, grace_secs: 5 };

    #[test]
    fn the_world_knows_hooks_again() {
        for way in [HookWay::Exec, HookWay::Http] {
            let hook = Hook { way, code: 2, takes_ms: 700 };
            let written = hook.to_json("pre-stop", "c0", RULES);
            let known = match way {
                HookWay::Http => Command::of_path(written["httpGet"]["path"].as_str().unwrap()),
                _ => serde_json::from_value::<Vec<String>>(written["exec"]["command"].clone())
                    .ok()
                    .map(|words| Command::parse(&words)),
            };
            assert_eq!(known, Some(Command::PreStop(hook)));
        }
    }

    #[test]
    fn a_pause_fits_the_grace_period() {
        let pause = |takes_ms| Hook { way: HookWay::Sleep, code: 0, takes_ms };
        for (takes_ms, seconds) in [(0, 0), (1_200, 2), (60_000, 5), (Hook::HANGS, 5)] {
            let written = pause(takes_ms).to_json("post-start", "c0", RULES);
            assert_eq!(written, json!({"sleep": {"seconds": seconds}}));
        }
        assert_eq!(Hook::OK.pause_secs(5), None);
    }
}
