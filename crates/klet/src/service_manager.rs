//! Talking to systemd: that the agent is up, and that it is still alive.
//!
//! Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; writes datagrams to the
//! socket. Never waits for it. Upstream: pkg/kubelet/watchdog, go-systemd.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

/// Shorter than this, a busy moment would look like a death.
const WATCHDOG_MIN: Duration = Duration::from_secs(1);

/// The watchdog of the unit is set up wrongly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchdogError {
    /// Not a number.
    #[error("{name} is {value:?}, which is not a number; it is systemd that should set it")]
    NotANumber {
        /// The variable.
        name: &'static str,
        /// Its text.
        value: OsString,
    },
    /// Too short to keep.
    #[error("the watchdog interval is {0:?}; set WatchdogSec of the unit to more than 1s")]
    TooShort(Duration),
}

/// How often systemd expects to hear of this process; none if it does not.
pub fn watchdog_from_environment() -> Result<Option<Duration>, WatchdogError> {
    let variable = |name| std::env::var_os(name).filter(|text| !text.is_empty());
    watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id())
}

fn watchdog(
    micros: Option<OsString>,
    of: Option<OsString>,
    pid: u32,
) -> Result<Option<Duration>, WatchdogError> {
    let Some(micros) = micros else { return Ok(None) };
    // Meant for another process that passed its environment on.
    if let Some(of) = of
        && number("WATCHDOG_PID", of)? != u64::from(pid)
    {
        return Ok(None);
    }
    let interval = Duration::from_micros(number("WATCHDOG_USEC", micros)?);
    if interval <= WATCHDOG_MIN {
        Err(WatchdogError::TooShort(interval))
    } else {
        Ok(Some(interval))
    }
}

fn number(name: &'static str, value: OsString) -> Result<u64, WatchdogError> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or(WatchdogError::NotANumber { name, value })
}

/// The way to systemd, if it started this process.
pub struct ServiceManager {
    way: Option<(UnixDatagram, SocketAddr)>,
}

impl ServiceManager {
    /// Reads where to send; sends nothing yet.
    pub fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self { way: None };
        };
        let open = || -> io::Result<_> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok((socket, address(&name)?))
        };
        let way = open().inspect_err(|error| {
            tracing::warn!(socket = ?name, %error, "cannot notify the service manager");
        });
        Self { way: way.ok() }
    }

    /// Tells that the agent is up.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Tells again and again that the agent is alive, if anybody wants to know.
    /// Told from the agent's own thread: one that is stuck falls silent.
    pub async fn keep_alive(&self, interval: Option<Duration>) -> Infallible {
        let (Some(interval), Some(_)) = (interval, &self.way) else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(interval / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.way else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(message, %error, "cannot notify the service manager");
        }
    }
}

/// A path, or with a leading `@` a name that is not in the file system.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(micros: Option<&str>, of: Option<&str>) -> Result<Option<Duration>, WatchdogError> {
        watchdog(micros.map(Into::into), of.map(Into::into), 7)
    }

    #[test]
    fn the_watchdog_of_this_process_only() {
        let minute = Ok(Some(Duration::from_secs(60)));
        assert_eq!(check(None, None), Ok(None));
        assert_eq!(check(Some("60000000"), None), minute);
        assert_eq!(check(Some("60000000"), Some("7")), minute);
        assert_eq!(check(Some("60000000"), Some("8")), Ok(None));
        assert_eq!(check(Some("5"), Some("8")), Ok(None));
    }

    #[test]
    fn a_watchdog_that_cannot_be_kept_is_an_error() {
        let second = Duration::from_secs(1);
        assert_eq!(check(Some("1000000"), None), Err(WatchdogError::TooShort(second)));
        assert_eq!(check(Some("0"), None), Err(WatchdogError::TooShort(Duration::ZERO)));
        for (micros, of) in [("soon", "7"), ("-1", "7"), ("60000000", "me")] {
            let error = check(Some(micros), Some(of)).unwrap_err();
            assert!(matches!(error, WatchdogError::NotANumber { .. }), "{error}");
        }
    }
}
