//! logind, over the system's bus.
//!
//! Owns one conversation at a time. Only what logind itself says counts: anybody on the
//! machine may send signals over the bus. Upstream: pkg/kubelet/nodeshutdown/systemd.

mod bus;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use dbus::{BUS, Body, Kind, Message, SYSTEM_BUS, Target};

use super::login::{Inhibitor, LoginError, LoginManager, LoginSession};
use bus::{Bus, BusError};

const LOGIN: Target = Target {
    service: "org.freedesktop.login1",
    path: "/org/freedesktop/login1",
    interface: "org.freedesktop.login1.Manager",
};
const LOGIN_PROPERTIES: Target = Target { interface: "org.freedesktop.DBus.Properties", ..LOGIN };
const SYSTEMD: Target = Target {
    service: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
};
const SIGNAL: &str = "PrepareForShutdown";
const RULE: &str = "type='signal',sender='org.freedesktop.login1',path='/org/freedesktop/login1',\
    interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'";
/// The signal that has it read its configuration.
const SIGHUP: i32 = 1;

/// Where the system's bus is, if not at its usual place, as every D-Bus client has it.
const ADDRESS: &str = "DBUS_SYSTEM_BUS_ADDRESS";

/// logind.
#[derive(Debug, Clone)]
pub struct Logind {
    /// The bus's socket, or why there is none.
    socket: Result<PathBuf, String>,
}

impl Logind {
    /// Behind the machine's bus.
    pub fn of_machine() -> Self {
        let address = std::env::var_os(ADDRESS).filter(|address| !address.is_empty());
        Self::named(address.map(|address| address.to_string_lossy().into_owned()).as_deref())
    }

    /// Behind the bus of this address, or at its usual place.
    fn named(address: Option<&str>) -> Self {
        let Some(address) = address else { return Self::at(SYSTEM_BUS) };
        let socket = dbus::socket_of(address).map(PathBuf::from);
        let socket = socket.ok_or_else(|| {
            format!("{ADDRESS}={address} names no socket that can be used; unset it")
        });
        Self { socket }
    }

    /// Behind the bus at this socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: Ok(socket.into()) }
    }
}

struct Session {
    bus: Bus,
    /// The bus's own name for logind.
    login: String,
    /// A signal of which it is not yet known who sent it.
    unsure: Option<Message>,
}

#[async_trait]
impl LoginManager for Logind {
    async fn open(&self) -> Result<Box<dyn LoginSession>, LoginError> {
        let socket = self.socket.as_ref().map_err(|why| LoginError::Unreachable(why.clone()))?;
        let mut bus = Bus::open(socket).await.map_err(|error| told("Hello", error))?;
        let rule = Body::default().text(RULE);
        bus.call(BUS, "AddMatch", &rule).await.map_err(|error| told("AddMatch", error))?;
        let mut session = Session { bus, login: String::new(), unsure: None };
        session.find_login().await?;
        Ok(Box::new(session))
    }
}

#[async_trait]
impl LoginSession for Session {
    async fn inhibit_delay(&mut self) -> Result<Duration, LoginError> {
        const CALL: &str = "InhibitDelayMaxUSec";
        let body = Body::default().text(LOGIN.interface).text(CALL);
        let answer = self.bus.call(LOGIN_PROPERTIES, "Get", &body).await;
        let answer = answer.map_err(|error| told(CALL, error))?;
        let mut body = answer.body();
        match (body.signature().as_deref(), body.u64()) {
            (Ok("t"), Ok(micros)) => Ok(Duration::from_micros(micros)),
            _ => Err(odd(CALL)),
        }
    }

    async fn reload(&mut self) -> Result<(), LoginError> {
        let body = Body::default().text("systemd-logind.service").text("all").int(SIGHUP);
        let answer = self.bus.call(SYSTEMD, "KillUnit", &body).await;
        answer.map(drop).map_err(|error| told("KillUnit", error))
    }

    async fn inhibit(&mut self) -> Result<Inhibitor, LoginError> {
        const CALL: &str = "Inhibit";
        let why = "Kubelet needs time to handle node shutdown";
        let body = Body::default().text("shutdown").text("kubelet").text(why).text("delay");
        let answer = self.bus.call(LOGIN, CALL, &body).await;
        let answer = answer.map_err(|error| told(CALL, error))?;
        let mut descriptors = self.bus.descriptors_of(&answer);
        match descriptors.pop() {
            Some(lock) if answer.signature == "h" && descriptors.is_empty() => Ok(Box::new(lock)),
            _ => Err(odd(CALL)),
        }
    }

    async fn next(&mut self) -> Result<bool, LoginError> {
        loop {
            let message = match self.unsure.take() {
                Some(message) => message,
                None => self.bus.next().await.map_err(|error| told(SIGNAL, error))?,
            };
            if message.kind != Kind::Signal || message.member != SIGNAL {
                continue;
            }
            // logind may have been restarted, under another name of the bus's.
            if message.sender != self.login {
                self.unsure = Some(message.clone());
                self.find_login().await?;
                self.unsure = None;
            }
            if message.sender != self.login {
                let sender = message.sender.as_str();
                tracing::warn!(sender, "somebody who is not logind tells of a shutdown; ignored");
                continue;
            }
            if let Some(is) = truth(&message) {
                return Ok(is);
            }
        }
    }
}

impl Session {
    async fn find_login(&mut self) -> Result<(), LoginError> {
        const CALL: &str = "GetNameOwner";
        let answer = self.bus.call(BUS, CALL, &Body::default().text(LOGIN.service)).await;
        let answer = match answer {
            // One that is started when it is asked has no name before.
            Err(BusError::Refused { name, .. }) if name.ends_with("NameHasNoOwner") => {
                self.inhibit_delay().await?;
                self.bus.call(BUS, CALL, &Body::default().text(LOGIN.service)).await
            }
            answer => answer,
        };
        let answer = answer.map_err(|error| told(CALL, error))?;
        self.login = answer.body().text().map_err(|_| odd(CALL))?;
        Ok(())
    }
}

/// What a signal with one truth says.
fn truth(message: &Message) -> Option<bool> {
    (message.signature == "b").then(|| message.body().u32().ok()).flatten().map(|value| value != 0)
}

fn told(call: &'static str, error: BusError) -> LoginError {
    match error {
        BusError::Refused { name, message } => {
            LoginError::Refused { call, why: format!("{name}: {message}") }
        }
        error => LoginError::Unreachable(format!("{call}: {error}")),
    }
}

fn odd(call: &'static str) -> LoginError {
    LoginError::Refused { call, why: "its answer is not of the expected type".to_owned() }
}
