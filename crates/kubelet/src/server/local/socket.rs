//! The socket itself: made for root alone.
//!
//! Owns the socket file while the agent runs and removes it after. A file that
//! a killed agent left behind is replaced; one that somebody serves is not.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::serve::Listener;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

use crate::ports::Tasks;
use crate::server::connections::serve_all;

/// The local endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody serves it.
    #[error("{} is served by another klet; each needs a --root-dir of its own", .0.display())]
    Taken(PathBuf),
    /// Something else lies there.
    #[error("{} exists and is not a socket; move it away", .0.display())]
    NotASocket(PathBuf),
    /// The kernel refused.
    #[error("cannot listen on {}: {source}", .path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the socket and serves the router on it until the agent ends.
pub fn serve(tasks: &Tasks, path: &Path, router: Router) -> Result<(), SocketError> {
    let (listener, file) = listen(path)?;
    let spawner = tasks.clone();
    tasks.spawn(async move {
        let _file = file;
        serve_all(spawner, Trusted(listener), router).await;
    });
    tracing::info!(path = %path.display(), "listening for local commands");
    Ok(())
}

fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let fail = |source| SocketError::Listen { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) if StdStream::connect(path).is_ok() => {
            return Err(SocketError::Taken(path.to_owned()));
        }
        Ok(_) => {}
    }
    // Under another name until its mode is right, then in the place of a stale one.
    let hidden = path.with_extension("sock.new");
    let bind = || -> io::Result<_> {
        match fs::remove_file(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = StdListener::bind(&hidden)?;
        fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let made = fs::symlink_metadata(&hidden)?;
        fs::rename(&hidden, path)?;
        let file = SocketFile { path: path.to_owned(), inode: (made.dev(), made.ino()) };
        Ok((UnixListener::from_std(listener)?, file))
    };
    bind().map_err(fail)
}

/// Removes the socket when dropped, unless another has taken its place.
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let own = fs::symlink_metadata(&self.path).is_ok_and(|f| (f.dev(), f.ino()) == self.inode);
        if own && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "socket not removed");
        }
    }
}

/// Accepts those only who may use it.
struct Trusted(UnixListener);

impl Listener for Trusted {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            if is_trusted(&stream) {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Root, or whoever runs the agent. The mode of the file says the same; this
/// holds also if somebody changes it.
fn is_trusted(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::getuid().as_raw() => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), pid = peer.pid(), "local connection refused");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "local connection refused: it does not tell whose it is");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn only_the_owner_may_use_it_and_it_goes_with_the_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("klet.sock");
        let (listener, file) = listen(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        let (client, server) =
            tokio::join!(UnixStream::connect(&path), async { listener.accept().await.unwrap().0 });
        assert!(is_trusted(&server));
        drop((client, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("klet.sock");
        drop(StdListener::bind(&path).unwrap());
        let (_listener, _file) = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(SocketError::Taken(_))));
    }

    #[tokio::test]
    async fn another_agents_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("klet.sock");
        let (listener, old) = listen(&path).unwrap();
        drop(listener);
        let (_listener, _new) = listen(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("klet.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
