//! `/debug/flags/v` and `/debug/pprof/`: what can be told of a program that is not Go's.
//!
//! Upstream: component-base logs (GlogSetter), net/http/pprof.

use std::fmt;
use std::sync::Arc;

use node_server::{Answer, ViewError};

const TEXT: &str = "text/plain; charset=utf-8";

/// Changes how much the agent logs. Whoever owns the log gives it.
#[derive(Clone)]
pub struct SetVerbosity(Arc<dyn Fn(u32) -> Result<(), String> + Send + Sync>);

impl SetVerbosity {
    /// What is to be done with a new verbosity, and why it could not.
    pub fn new(set: impl Fn(u32) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(set))
    }
}

impl fmt::Debug for SetVerbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetVerbosity")
    }
}

/// Changes it to what a request says.
pub(super) fn set_verbosity(to: Option<&SetVerbosity>, text: &str) -> Result<String, ViewError> {
    let Some(SetVerbosity(set)) = to else {
        return Err(ViewError::not_implemented("changing the verbosity of a running agent"));
    };
    // Go takes neither signs nor spaces here.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(level) = text.parse::<u32>().ok().filter(|_| digits) else {
        let why = if digits { "value out of range" } else { "invalid syntax" };
        let text: String = text.chars().take(40).collect();
        let message = format!("strconv.ParseUint: parsing {text:?}: {why}");
        return Err(ViewError::new(400, message));
    };
    set(level).map_err(|why| ViewError::new(400, why))?;
    tracing::info!(verbosity = level, "the verbosity was changed");
    Ok(format!("successfully set klog.logging.verbosity to {level}"))
}

/// A page below `/debug/pprof/`. `command` is how the agent was started, secrets masked.
pub(super) fn profile(name: &str, command: &[String]) -> Result<Answer, ViewError> {
    match name {
        "" => Ok(Answer::text(
            TEXT,
            "cmdline: how the agent was started\nsymbol: none, the program has no table of them\n\
             Profiles of Go's runtime (profile, trace, heap, goroutine, …) do not exist in a \
             program that is not written in Go; use perf on the node.\n",
        )),
        "cmdline" => Ok(Answer::text(TEXT, command.join("\0"))),
        // What says that there is no table.
        "symbol" => Ok(Answer::text(TEXT, "num_symbols: 0\n")),
        other => {
            let other: String = other.chars().take(40).collect();
            Err(ViewError::new(
                501,
                format!(
                    "there is no profile {other:?}: this agent is not written in Go and has no Go \
                     runtime to profile; use perf on the node"
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_number_is_a_verbosity() {
        let level = Arc::new(AtomicU32::new(0));
        let held = Arc::clone(&level);
        let set = SetVerbosity::new(move |to| match to {
            99 => Err("too much".to_owned()),
            to => {
                held.store(to, Ordering::SeqCst);
                Ok(())
            }
        });
        let said = set_verbosity(Some(&set), "4").unwrap();
        assert_eq!(said, "successfully set klog.logging.verbosity to 4");
        assert_eq!(level.load(Ordering::SeqCst), 4);
        for bad in ["", "-1", "+1", " 1", "1\n", "x", "4294967296", "99"] {
            assert_eq!(set_verbosity(Some(&set), bad).unwrap_err().status, 400, "{bad:?}");
        }
        assert_eq!(level.load(Ordering::SeqCst), 4);
        assert_eq!(set_verbosity(None, "1").unwrap_err().status, 501);
    }

    #[test]
    fn what_cannot_be_told_is_not_made_up() {
        let command = ["klet".to_owned(), "--v=2".to_owned()];
        for name in ["", "cmdline", "symbol"] {
            assert!(profile(name, &command).is_ok(), "{name}");
        }
        for name in ["heap", "profile", "trace", "goroutine", "x"] {
            assert_eq!(profile(name, &command).err().unwrap().status, 501, "{name}");
        }
    }
}
