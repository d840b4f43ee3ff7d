//! Notices of changes, by inotify.
//!
//! A directory is watched itself. A file is watched through its directory, so
//! that replacing it by a rename is seen. Writes are noticed when the writer
//! closes the file: half-written content is not announced.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use inotify::{EventMask, EventStream, Inotify, WatchMask};

use super::ChangeStream;

/// Room for some events; more wait in the kernel's queue.
const BUFFER_BYTES: usize = 4_096;

/// Watches a path, or the place where it would be.
pub(super) fn watch(path: &Path) -> io::Result<ChangeStream> {
    let is_dir = path.is_dir();
    let (dir, only) = match (is_dir, path.parent(), path.file_name()) {
        (false, Some(parent), Some(name)) if parent.as_os_str().is_empty() => {
            (Path::new("."), Some(name.to_owned()))
        }
        (false, Some(parent), Some(name)) => (parent, Some(name.to_owned())),
        _ => (path, None),
    };
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::CREATE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    inotify.watches().add(dir, mask)?;
    let watch = Watch {
        events: inotify.into_event_stream(vec![0; BUFFER_BYTES])?,
        path: path.to_owned(),
        only,
        over: false,
    };
    Ok(stream::unfold(watch, next_change).boxed())
}

struct Watch {
    events: EventStream<Vec<u8>>,
    path: PathBuf,
    /// The one entry that matters; `None` if all do.
    only: Option<OsString>,
    over: bool,
}

async fn next_change(mut watch: Watch) -> Option<((), Watch)> {
    while !watch.over {
        // A watch that cannot be read is over; the caller rescans and asks anew.
        let event = watch.events.next().await?.ok()?;
        let lost =
            EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::IGNORED | EventMask::UNMOUNT;
        if event.mask.intersects(lost) {
            return None;
        }
        if event.mask.contains(EventMask::Q_OVERFLOW) || watch.concerns(event.name.as_deref()) {
            // The path was a file or absent. As a directory it needs another watch.
            watch.over = watch.only.is_some() && watch.path.is_dir();
            return Some(((), watch));
        }
    }
    None
}

impl Watch {
    fn concerns(&self, name: Option<&OsStr>) -> bool {
        match (&self.only, name) {
            (Some(only), Some(name)) => only == name,
            (Some(_), None) => false,
            (None, _) => true,
        }
    }
}
