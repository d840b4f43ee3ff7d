//! Plugins that register by a socket in the registry: CSI drivers.
//!
//! Owns the registry's directory and one task per socket in it. Reads who is
//! there; writes the table of [`Drivers`] that volumes use. A socket that appears
//! is registered, again and again until it works; one that goes, or is made anew,
//! takes its driver with it; a cluster hears of both. Never calls a driver but to ask
//! how it knows the node. Upstream: pkg/kubelet/pluginmanager.

mod drivers;
mod refresh;
mod register;
#[cfg(test)]
mod tests;
mod version;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster::csi_node::CsiNodeHandle;
use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::sleep;

use drivers::Seat;
pub use drivers::{CsiDriver, DriverWatch, Drivers, NoDriver, NotEntered};
pub use refresh::Refresh;
use register::Registered;
pub use version::Version;

use crate::object_cache::Objects;
use crate::ports::{ChangeStream, DirEntry, FileStamp, Fs, Plugins, Ports, Tasks};

/// Where plugins put their sockets, below the root directory.
const REGISTRY: &str = "plugins_registry";
/// Where they keep what is theirs.
const PLUGINS: &str = "plugins";
/// Sockets that are attended to: a node has a handful of drivers.
const SOCKETS_MAX: usize = 64;
/// Pause after the first failure to register; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(122);
/// Pause before a cluster that was away is told again of a driver that is in use.
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(10);
/// How often the registry is looked at while it cannot be watched, or listed.
const RESCAN: Duration = Duration::from_secs(10);
/// Pause before a watch that broke is begun anew.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Quiet before a look, so that a burst of changes costs one.
const SETTLE: Duration = Duration::from_millis(20);

/// Starts to look for plugins, which register among these drivers. In a cluster, they are
/// announced to it.
pub fn start(
    root_dir: &Path,
    ports: &Ports,
    drivers: &Drivers,
    announcer: Option<CsiNodeHandle>,
    objects: &Objects,
) {
    let manager = Manager {
        dir: root_dir.join(REGISTRY),
        plugins_dir: root_dir.join(PLUGINS),
        fs: Arc::clone(&ports.fs),
        plugins: Arc::clone(&ports.plugins),
        tasks: ports.tasks.clone(),
        drivers: drivers.clone(),
        announcer,
        objects: objects.clone(),
        attended: BTreeMap::new(),
        said: None,
    };
    ports.tasks.spawn(manager.run());
}

struct Manager {
    dir: PathBuf,
    plugins_dir: PathBuf,
    fs: Arc<dyn Fs>,
    plugins: Arc<dyn Plugins>,
    tasks: Tasks,
    drivers: Drivers,
    announcer: Option<CsiNodeHandle>,
    objects: Objects,
    attended: BTreeMap<PathBuf, Attended>,
    /// The last complaint, so that it is made once.
    said: Option<String>,
}

/// A socket with a task of its own.
struct Attended {
    identity: Identity,
    /// Its task ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// Tells a socket from one that was made anew under its name. Not the time of
/// change: plugins set the mode of their socket once it is there.
type Identity = ((u64, u64), i128);

fn identity(stamp: FileStamp) -> Identity {
    (stamp.inode, stamp.modified_ns)
}

impl Manager {
    async fn run(mut self) {
        let mut watch: Option<ChangeStream> = None;
        loop {
            // Watched first: what comes during the look is then announced.
            let mut trouble = self.prepare().err();
            if watch.is_none() {
                match self.fs.watch(&self.dir) {
                    Ok(stream) => watch = Some(stream),
                    Err(error) => trouble = Some(error),
                }
            }
            match self.fs.list(&self.dir) {
                Ok(entries) => self.attend(&entries),
                // What is registered stays so: nobody says that it went.
                Err(error) => trouble = Some(error),
            }
            let troubled = trouble.is_some();
            self.complain(trouble.map(|error| error.to_string()));
            wait(&mut watch, troubled).await;
        }
    }

    fn prepare(&self) -> std::io::Result<()> {
        self.fs.create_dir_all(&self.plugins_dir, 0o750)?;
        self.fs.create_dir_all(&self.dir, 0o750)
    }

    fn complain(&mut self, why: Option<String>) {
        if let Some(why) = &why
            && self.said.as_ref() != Some(why)
        {
            let path = self.dir.display();
            tracing::warn!(%path, why, "no plugin's socket is found; looking again in a while");
        }
        self.said = why;
    }

    /// Attends to exactly these sockets.
    fn attend(&mut self, entries: &[DirEntry]) {
        let is_socket = |entry: &&DirEntry| {
            let hidden = entry.name.to_string_lossy().starts_with('.');
            !entry.is_file && !entry.is_dir && !hidden
        };
        let seen = entries.iter().filter(is_socket);
        let seen = seen.map(|entry| (self.dir.join(&entry.name), identity(entry.stamp)));
        let mut seen: BTreeMap<PathBuf, Identity> = seen.collect();
        if seen.len() > SOCKETS_MAX {
            let path = self.dir.display();
            let (found, limit) = (seen.len(), SOCKETS_MAX);
            tracing::error!(%path, found, limit, "more plugins than are attended to; the last by name are left out");
            seen = seen.into_iter().take(SOCKETS_MAX).collect();
        }
        let gone = self.attended.iter();
        let gone = gone.filter(|(path, known)| seen.get(*path) != Some(&known.identity));
        for path in gone.map(|(path, _)| path.clone()).collect::<Vec<_>>() {
            self.attended.remove(&path);
            let socket = path.display();
            match self.drivers.unseat(&path) {
                Some(driver) => {
                    tracing::info!(driver, %socket, "CSI driver has gone");
                    if let Some(announcer) = &self.announcer {
                        announcer.withdraw(&driver);
                    }
                }
                None => tracing::debug!(%socket, "a plugin's socket has gone"),
            }
        }
        for (path, identity) in seen {
            if self.attended.contains_key(&path) {
                continue;
            }
            let (stop, stopped) = oneshot::channel();
            let work = Registration {
                seat: self.drivers.seat(&path),
                plugins: Arc::clone(&self.plugins),
                drivers: self.drivers.clone(),
                announcer: self.announcer.clone(),
                objects: self.objects.clone(),
            };
            self.tasks.spawn(async move {
                tokio::select! { biased;
                    _ = stopped => {}
                    () = work.run() => {}
                }
            });
            self.attended.insert(path, Attended { identity, _stop: stop });
        }
    }
}

/// Waits until it is worth looking again; not for ever if the last look failed.
async fn wait(watch: &mut Option<ChangeStream>, troubled: bool) {
    let Some(stream) = watch else { return sleep(RESCAN).await };
    let alive = tokio::select! { biased;
        change = stream.next() => change.is_some(),
        () = sleep(RESCAN), if troubled => return,
    };
    if alive {
        return sleep(SETTLE).await;
    }
    *watch = None;
    sleep(WATCH_PAUSE).await;
}

/// One socket's way to being registered.
struct Registration {
    seat: Seat,
    plugins: Arc<dyn Plugins>,
    drivers: Drivers,
    announcer: Option<CsiNodeHandle>,
    objects: Objects,
}

impl Registration {
    /// Tries until it works.
    async fn run(self) {
        let socket = self.seat.socket.display();
        let (mut pause, mut said) = (PAUSE_FIRST, String::new());
        loop {
            let Self { plugins, drivers, seat, announcer, objects } = &self;
            let announcer = announcer.as_ref();
            match register::register(&**plugins, drivers, seat, announcer, objects).await {
                Ok(Registered { name: driver, announced }) => {
                    tracing::info!(driver, %socket, announced, "CSI driver registered");
                    if let (false, Some(announcer)) = (announced, announcer) {
                        announce_later(&driver, announcer).await;
                    }
                    return;
                }
                Err(error) => {
                    let error = error.to_string();
                    if said != error {
                        tracing::warn!(%socket, error, "plugin not registered; trying again");
                    }
                    said = error;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Tells the cluster of a driver that is in use already, once it can be told.
async fn announce_later(driver: &str, announcer: &CsiNodeHandle) {
    while let Err(error) = announcer.announce(driver).await {
        tracing::debug!(driver, %error, "the cluster does not know of a CSI driver; trying again");
        sleep(ANNOUNCE_PAUSE).await;
    }
    tracing::info!(driver, "the cluster knows of the CSI driver");
}
