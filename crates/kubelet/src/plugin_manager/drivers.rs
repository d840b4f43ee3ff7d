//! The CSI drivers that are registered, and who has to hear of changes.
//!
//! Owns the table of drivers. Each socket in the registry holds a seat; only who
//! has the seat may enter a driver, so that a registration that was still under
//! way when its socket went enters nothing.
//! Upstream: pkg/volume/csi/csi_drivers_store.go.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use cluster::csi_node::{Driver, Registered};
use plugin_apis::csi::NodeGetInfoResponse;
use tokio::sync::Notify;

use super::version::Version;
use crate::followers::{Followers, Following};
use crate::ports::CsiNode;

/// A driver that is registered.
#[derive(Clone)]
pub struct CsiDriver {
    /// Its name.
    pub name: String,
    /// The version of CSI it speaks.
    pub version: Version,
    /// Where it serves.
    pub endpoint: String,
    /// How it knows this node.
    pub node_id: String,
    /// Volumes it can attach here; zero or less if it does not say.
    pub volumes_max: i64,
    /// Where this node is, as it sees it.
    pub topology: BTreeMap<String, String>,
    /// Asks it for things.
    pub node: Arc<dyn CsiNode>,
}

impl fmt::Debug for CsiDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, endpoint, node_id, .. } = self;
        write!(f, "CsiDriver {name} {version} at {endpoint}, node {node_id}")
    }
}

/// No driver of this name is registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("driver name {0} not found in the list of registered CSI drivers")]
pub struct NoDriver(pub String);

/// Why a driver is not entered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEntered {
    /// Another has the name.
    #[error(
        "Another driver with the same name is already registered with a higher supported version: \
         {version:?}; it is the one behind {}",
        .socket.display()
    )]
    Taken {
        /// What that one speaks.
        version: String,
        /// Its socket.
        socket: PathBuf,
    },
    /// The socket has gone, or is another now.
    #[error("the socket has gone meanwhile")]
    SeatLost,
}

/// The registered drivers. Cheap to clone.
#[derive(Clone, Default)]
pub struct Drivers(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// With the socket that entered it.
    by_name: BTreeMap<String, (PathBuf, Arc<CsiDriver>)>,
    seats: BTreeMap<PathBuf, u64>,
    seated: u64,
    followers: Followers<()>,
    /// Those to be asked at once how many volumes they can attach.
    questions: BTreeSet<String>,
    asked: Arc<Notify>,
}

/// Returns from `changed` once a driver has come or gone.
pub type DriverWatch = Following<()>;

/// The right to enter drivers for a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) socket: PathBuf,
    number: u64,
}

impl Drivers {
    /// One driver, registered, for tests of those who use it.
    #[cfg(test)]
    pub(crate) fn holding(name: &str, node: Arc<dyn CsiNode>) -> Self {
        let drivers = Self::default();
        let version = super::version::highest_supported(&["1.0.0".to_owned()]);
        let driver = CsiDriver {
            name: name.to_owned(),
            version: version.expect("a version"),
            endpoint: String::new(),
            node_id: "n".to_owned(),
            volumes_max: 0,
            topology: BTreeMap::new(),
            node,
        };
        let seat = drivers.seat(Path::new("/registry/d.sock"));
        drivers.enter(&seat, driver).expect("room for one");
        drivers
    }

    /// A driver by its name.
    pub fn get(&self, name: &str) -> Result<Arc<CsiDriver>, NoDriver> {
        let state = self.lock();
        let found = state.by_name.get(name).map(|(_, driver)| Arc::clone(driver));
        found.ok_or_else(|| NoDriver(name.to_owned()))
    }

    /// Follows all drivers from now on.
    pub fn follow(&self) -> DriverWatch {
        self.lock().followers.follow(())
    }

    /// Gives a socket its seat, in place of one it had.
    pub(super) fn seat(&self, socket: &Path) -> Seat {
        self.unseat(socket);
        let mut state = self.lock();
        state.seated += 1;
        let number = state.seated;
        state.seats.insert(socket.to_owned(), number);
        Seat { socket: socket.to_owned(), number }
    }

    /// Takes a socket's seat, and its driver with it. Returns the driver's name.
    pub(super) fn unseat(&self, socket: &Path) -> Option<String> {
        let mut state = self.lock();
        state.seats.remove(socket);
        Self::remove(&mut state, socket)
    }

    /// Takes the driver of a seat, but not the seat.
    pub(super) fn leave(&self, seat: &Seat) {
        let mut state = self.lock();
        if state.seats.get(&seat.socket) == Some(&seat.number) {
            Self::remove(&mut state, &seat.socket);
        }
    }

    fn remove(state: &mut State, socket: &Path) -> Option<String> {
        let entry = state.by_name.iter().find(|(_, (owner, _))| owner == socket);
        let name = entry.map(|(name, _)| name.clone())?;
        state.by_name.remove(&name);
        state.followers.tell(|()| true);
        Some(name)
    }

    /// Is there room for a driver of this name and version?
    pub(super) fn check(
        &self,
        seat: &Seat,
        name: &str,
        version: &Version,
    ) -> Result<(), NotEntered> {
        Self::check_in(&self.lock(), seat, name, version)
    }

    fn check_in(
        state: &State,
        seat: &Seat,
        name: &str,
        version: &Version,
    ) -> Result<(), NotEntered> {
        if state.seats.get(&seat.socket) != Some(&seat.number) {
            return Err(NotEntered::SeatLost);
        }
        match state.by_name.get(name) {
            Some((socket, other)) if *socket != seat.socket && other.version >= *version => {
                let version = other.version.to_string();
                Err(NotEntered::Taken { version, socket: socket.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Enters a driver, in place of one that speaks a lower version.
    pub(super) fn enter(&self, seat: &Seat, driver: CsiDriver) -> Result<(), NotEntered> {
        let mut state = self.lock();
        Self::check_in(&state, seat, &driver.name, &driver.version)?;
        let name = driver.name.clone();
        state.by_name.retain(|_, (owner, _)| *owner != seat.socket);
        state.by_name.insert(name, (seat.socket.clone(), Arc::new(driver)));
        state.followers.tell(|()| true);
        Ok(())
    }

    /// Takes what a driver says of the node now, unless another has its place meanwhile.
    pub(super) fn renew(&self, known: &Arc<CsiDriver>, info: NodeGetInfoResponse) {
        let NodeGetInfoResponse { node_id, max_volumes_per_node, accessible_topology } = info;
        let topology = accessible_topology.unwrap_or_default().segments.into_iter().collect();
        let mut state = self.lock();
        if let Some((_, driver)) = state.by_name.get_mut(&known.name)
            && Arc::ptr_eq(driver, known)
        {
            let (volumes_max, known) = (max_volumes_per_node, CsiDriver::clone(known));
            *driver = Arc::new(CsiDriver { node_id, volumes_max, topology, ..known });
        }
    }

    /// A driver cannot attach as many volumes as it said: it is asked again, and the
    /// cluster told. May be said at any time.
    pub fn ask_again(&self, name: &str) {
        let mut state = self.lock();
        state.questions.insert(name.to_owned());
        state.asked.notify_one();
    }

    /// Waits until some driver is to be asked; one may call this.
    pub(super) async fn to_ask(&self) -> BTreeSet<String> {
        loop {
            let asked = {
                let mut state = self.lock();
                if !state.questions.is_empty() {
                    return std::mem::take(&mut state.questions);
                }
                Arc::clone(&state.asked)
            };
            asked.notified().await;
        }
    }

    /// Names of all drivers.
    pub fn names(&self) -> Vec<String> {
        self.lock().by_name.keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("drivers lock: no code panics while holding it")
    }
}

/// What the cluster is told of them.
impl Registered for Drivers {
    fn driver(&self, name: &str) -> Option<Driver> {
        let driver = self.get(name).ok()?;
        Some(Driver {
            name: driver.name.clone(),
            node_id: driver.node_id.clone(),
            volumes_max: driver.volumes_max,
            topology: driver.topology.clone(),
        })
    }

    fn names(&self) -> Vec<String> {
        Self::names(self)
    }
}
