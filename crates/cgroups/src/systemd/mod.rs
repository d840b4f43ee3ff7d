//! Slices, made, limited and removed by systemd.
//!
//! Owns one conversation with systemd, begun when it is first needed. Never blocks
//! for more than some seconds, and once systemd has been silent, not at all for a
//! while: the agent has one thread, and pods that run must not wait for pods that
//! start. Upstream: systemd/dbus.go and common.go of opencontainers/cgroups.

mod connection;
mod properties;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

pub use connection::Address;

use connection::{Connection, Moment, TalkError};
use dbus::{Body, Message, SYSTEM_BUS, Target};

use crate::error::CgroupError;
use crate::hierarchy::Version;
use crate::limits::Limits;

/// A call is answered within milliseconds.
const ANSWER: Duration = Duration::from_secs(1);
/// A slice has nothing to start or stop, so its job is over at once.
const JOB: Duration = Duration::from_secs(2);
/// How long a systemd that was silent is left alone.
const REST: Duration = Duration::from_secs(10);

const MANAGER: Target = Target {
    service: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const PROPERTIES: Target = Target { interface: "org.freedesktop.DBus.Properties", ..MANAGER };

/// systemd, asked over D-Bus.
#[derive(Debug)]
pub struct Systemd {
    addresses: Vec<Address>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    version: Option<u32>,
    /// Not to be asked before.
    rest_until: Option<Moment>,
}

impl Default for Systemd {
    fn default() -> Self {
        Self::at(Address::usual())
    }
}

impl Address {
    /// The system's bus, else systemd itself, which lets only root in.
    pub fn usual() -> Vec<Self> {
        let at = |path: &str, bus| Self { path: path.into(), bus };
        vec![at(SYSTEM_BUS, true), at("/run/systemd/private", false)]
    }
}

impl Systemd {
    /// Behind the first of these that lets us in.
    pub fn at(addresses: Vec<Address>) -> Self {
        Self { addresses, state: Mutex::default() }
    }

    /// Starts a slice that may run already.
    pub(crate) fn start(
        &self,
        unit: &str,
        parent: &str,
        version: Version,
    ) -> Result<(), CgroupError> {
        let properties = properties::of_new_slice(unit, parent, version);
        let body = Body::default().text(unit).text("replace").properties(&properties);
        let body = body.no_other_units();
        self.talk("start", unit, |connection| {
            let call = connection.call(MANAGER, "StartTransientUnit", &body, Moment::after(ANSWER));
            let answer = match call {
                Err(error) if error.is_refusal("systemd1.UnitExists") => return Ok(()),
                answer => answer?,
            };
            match await_end(connection, &answer)?.as_str() {
                "done" => Ok(()),
                how => {
                    // A unit that failed stays in systemd's way until it is reset.
                    reset(connection, unit)?;
                    let message = format!("the job ended as {how}");
                    Err(TalkError::Refused { name: "not started".to_owned(), message })
                }
            }
        })
    }

    /// Sets a slice's limits, and answers them as systemd rounds them.
    pub(crate) fn limit(
        &self,
        unit: &str,
        limits: &Limits,
        version: Version,
    ) -> Result<Limits, CgroupError> {
        let systemd = self.version(unit)?;
        let properties = properties::of_limits(limits, version, systemd);
        if !properties.is_empty() {
            // For as long as the machine runs: the agent sets them anew after that.
            let body = Body::default().text(unit).bool(true).properties(&properties);
            self.talk("limit", unit, |connection| {
                connection.call(MANAGER, "SetUnitProperties", &body, Moment::after(ANSWER))
            })?;
        }
        Ok(properties::rounded(limits))
    }

    /// Stops a slice; one that systemd does not know is stopped.
    pub(crate) fn stop(&self, unit: &str) -> Result<(), CgroupError> {
        let body = Body::default().text(unit).text("replace");
        self.talk("stop", unit, |connection| {
            match connection.call(MANAGER, "StopUnit", &body, Moment::after(ANSWER)) {
                Err(error) if error.is_refusal("systemd1.NoSuchUnit") => return Ok(()),
                // However it ended: what is left of the group tells.
                answer => drop(await_end(connection, &answer?)?),
            }
            reset(connection, unit)
        })
    }

    /// systemd's version, asked once; 0 if it tells none.
    fn version(&self, unit: &str) -> Result<u32, CgroupError> {
        if let Some(version) = self.lock().version {
            return Ok(version);
        }
        let body = Body::default().text(MANAGER.interface).text("Version");
        let answer = self.talk("ask the version of", unit, |connection| {
            connection.call(PROPERTIES, "Get", &body, Moment::after(ANSWER))
        })?;
        let mut body = answer.body();
        let is_text = body.signature().is_ok_and(|signature| signature == "s");
        let text = is_text.then(|| body.text().ok()).flatten().unwrap_or_default();
        let version = version_number(&text);
        self.lock().version = Some(version);
        Ok(version)
    }

    /// Talks, once more on a new connection if the old one was cut: systemd and the
    /// bus may be restarted at any time.
    fn talk<T>(
        &self,
        operation: &'static str,
        unit: &str,
        say: impl Fn(&mut Connection) -> Result<T, TalkError>,
    ) -> Result<T, CgroupError> {
        let mut state = self.lock();
        if state.rest_until.is_some_and(|until| until > Moment::now()) {
            let why = "it did not answer a moment ago and is left alone for ten seconds".to_owned();
            return Err(CgroupError::SystemdUnreachable { why });
        }
        state.rest_until = None;
        let old = state.connection.take();
        let fresh = old.is_none();
        let mut connection = old.map_or_else(|| self.connect(&mut state), Ok)?;
        let mut outcome = say(&mut connection);
        if !fresh && matches!(&outcome, Err(TalkError::Broken(_)) if !is_silent(&outcome)) {
            connection = self.connect(&mut state)?;
            outcome = say(&mut connection);
        }
        if is_silent(&outcome) {
            state.rest_until = Some(Moment::after(REST));
        }
        // What is left unread of a conversation that went wrong must not answer the next.
        if matches!(outcome, Ok(_) | Err(TalkError::Refused { .. })) {
            state.connection = Some(connection);
        }
        outcome.map_err(|error| match error {
            TalkError::Refused { .. } => CgroupError::SystemdRefused {
                operation,
                unit: unit.to_owned(),
                why: error.to_string(),
            },
            _ if error.is_silence() => CgroupError::SystemdUnreachable {
                why: format!("no answer in time when asked to {operation} {unit}"),
            },
            other => CgroupError::SystemdUnreachable { why: other.to_string() },
        })
    }

    fn connect(&self, state: &mut State) -> Result<Connection, CgroupError> {
        let mut failures = Vec::new();
        for address in &self.addresses {
            match Connection::open(address) {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    if error.is_silence() {
                        state.rest_until = Some(Moment::after(REST));
                    }
                    failures.push(error.to_string());
                }
            }
        }
        Err(CgroupError::SystemdUnreachable { why: failures.join("; ") })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("systemd lock: no code panics while holding it")
    }
}

fn is_silent<T>(outcome: &Result<T, TalkError>) -> bool {
    matches!(outcome, Err(error) if error.is_silence())
}

fn await_end(connection: &mut Connection, started: &Message) -> Result<String, TalkError> {
    let job = started.body().text()?;
    connection.await_job(&job, Moment::after(JOB))
}

/// Lets systemd forget a unit that failed; most have not, and it says so.
fn reset(connection: &mut Connection, unit: &str) -> Result<(), TalkError> {
    let body = Body::default().text(unit);
    match connection.call(MANAGER, "ResetFailedUnit", &body, Moment::after(ANSWER)) {
        Ok(_) | Err(TalkError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The first number of `v252.4-1` or `252`.
fn version_number(text: &str) -> u32 {
    let text = text.trim_start_matches(['"', 'v']);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}
