//! How far each pull has come: behind others, or under way and, where the runtime
//! can tell, how many bytes of it are here.
//!
//! Owns the order of pulls and what is known of downloads while they run. A runtime lists downloads
//! without saying which pull they belong to: one that is first seen while a
//! single pull runs is that pull's, any other is nobody's. There is no such
//! thing upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use cri::Download;

/// Bytes of one pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullProgress {
    /// Here already.
    pub done: u64,
    /// As far as is known yet: layers that wait for their turn are not in it.
    pub total: u64,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullState {
    /// Pulls are limited, and it waits for its turn.
    Queued {
        /// Behind so many others that run or wait.
        behind: usize,
    },
    /// Under way, with its bytes if the runtime tells.
    Running(Option<PullProgress>),
}

impl PullState {
    /// How far the pull is, for a row of a table; nothing if that is not known.
    pub fn brief(self) -> Option<String> {
        match self {
            Self::Queued { .. } => Some(format!("pull {self}")),
            Self::Running(None) => None,
            Self::Running(Some(_)) => Some(format!("pulling {self}")),
        }
    }
}

impl fmt::Display for PullState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        match self {
            Self::Queued { behind: 1 } => f.write_str("waits behind 1 other pull"),
            Self::Queued { behind } => write!(f, "waits behind {behind} other pulls"),
            Self::Running(None) => f.write_str("under way"),
            Self::Running(Some(PullProgress { done, total })) => {
                write!(f, "{:.1} MB of {:.1} MB", megabytes(*done), megabytes(*total))
            }
        }
    }
}

/// Progress of every pull.
#[derive(Default)]
pub struct Board(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    pulls: BTreeMap<u64, Pull>,
    /// Downloads that could be of several pulls.
    nobodys: Vec<String>,
}

struct Pull {
    image: String,
    /// It has its turn.
    running: bool,
    downloads: BTreeMap<String, PullProgress>,
}

/// A pull on the board, until dropped.
pub struct Entry<'a> {
    board: &'a Board,
    key: u64,
}

impl Board {
    /// A pull is asked for and waits for its turn; turns come in this order.
    pub fn queue(&self, image: &str) -> Entry<'_> {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        let pull = Pull { image: image.to_owned(), running: false, downloads: BTreeMap::new() };
        state.pulls.insert(key, pull);
        Entry { board: self, key }
    }

    /// What the runtime says is being downloaded.
    pub fn note(&self, downloads: &[Download]) {
        let State { pulls, nobodys, .. } = &mut *self.lock();
        nobodys.retain(|name| downloads.iter().any(|download| &download.name == name));
        for pull in pulls.values_mut() {
            // What is no longer listed has come in.
            for (name, progress) in &mut pull.downloads {
                if !downloads.iter().any(|download| &download.name == name) {
                    progress.done = progress.total;
                }
            }
        }
        let mut running = pulls.values().filter(|pull| pull.running);
        let alone = running.next().is_some() && running.next().is_none();
        for download in downloads {
            let progress =
                PullProgress { done: download.done.min(download.total), total: download.total };
            let known = pulls.values_mut().find_map(|p| p.downloads.get_mut(&download.name));
            if let Some(known) = known {
                *known = progress;
                continue;
            }
            if nobodys.contains(&download.name) {
                continue;
            }
            match pulls.values_mut().find(|pull| pull.running) {
                Some(pull) if alone => {
                    pull.downloads.insert(download.name.clone(), progress);
                }
                _ => nobodys.push(download.name.clone()),
            }
        }
    }

    /// How far the pull of an image is; `None` if nobody pulls it. Of several the
    /// one that is ahead counts.
    pub fn of(&self, image: &str) -> Option<PullState> {
        let state = self.lock();
        let mut of_image = state.pulls.iter().filter(|(_, pull)| pull.image == image);
        let (key, pull) = of_image.next()?;
        if !pull.running {
            return Some(PullState::Queued { behind: state.pulls.range(..key).count() });
        }
        let sum = pull.downloads.values().fold(PullProgress::default(), |sum, one| PullProgress {
            done: sum.done.saturating_add(one.done),
            total: sum.total.saturating_add(one.total),
        });
        Some(PullState::Running((sum.total > 0).then_some(sum)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("progress lock: no code panics while holding it")
    }
}

impl Entry<'_> {
    /// The pull has its turn.
    pub fn run(&self) {
        if let Some(pull) = self.board.lock().pulls.get_mut(&self.key) {
            pull.running = true;
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.board.lock().pulls.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download(name: &str, done: u64, total: u64) -> Download {
        Download { name: name.to_owned(), done, total }
    }

    fn told(board: &Board, image: &str) -> Option<(u64, u64)> {
        match board.of(image)? {
            PullState::Running(progress) => progress.map(|p| (p.done, p.total)),
            PullState::Queued { behind } => panic!("{image} waits behind {behind}"),
        }
    }

    fn begin<'b>(board: &'b Board, image: &str) -> Entry<'b> {
        let entry = board.queue(image);
        entry.run();
        entry
    }

    #[test]
    fn those_that_wait_know_how_many_are_ahead() {
        let board = Board::default();
        assert_eq!(board.of("x"), None);
        let x = begin(&board, "x");
        let (y, z) = (board.queue("y"), board.queue("z"));
        assert_eq!(board.of("x"), Some(PullState::Running(None)));
        assert_eq!(board.of("y"), Some(PullState::Queued { behind: 1 }));
        assert_eq!(board.of("z"), Some(PullState::Queued { behind: 2 }));
        board.note(&[download("a", 1, 10)]);
        assert_eq!(told(&board, "x"), Some((1, 10)), "those that wait download nothing");
        drop(x);
        y.run();
        assert_eq!(board.of("z"), Some(PullState::Queued { behind: 1 }));
        drop((y, z));
        assert_eq!(board.of("z"), None);
    }

    #[test]
    fn layers_add_up_and_stay_when_they_are_in() {
        let board = Board::default();
        let pull = begin(&board, "x");
        assert_eq!(told(&board, "x"), None);
        board.note(&[download("a", 10, 100)]);
        assert_eq!(told(&board, "x"), Some((10, 100)));
        board.note(&[download("a", 100, 100), download("b", 5, 50)]);
        assert_eq!(told(&board, "x"), Some((105, 150)));
        board.note(&[download("b", 60, 50)]);
        assert_eq!(told(&board, "x"), Some((150, 150)));
        drop(pull);
        assert_eq!(told(&board, "x"), None);
    }

    #[test]
    fn what_could_be_of_two_pulls_is_of_none() {
        let board = Board::default();
        let _x = begin(&board, "x");
        board.note(&[download("a", 1, 10)]);
        let y = begin(&board, "y");
        board.note(&[download("a", 2, 10), download("b", 1, 10)]);
        assert_eq!((told(&board, "x"), told(&board, "y")), (Some((2, 10)), None));
        drop(y);
        board.note(&[download("a", 3, 10), download("b", 2, 10)]);
        assert_eq!(told(&board, "x"), Some((3, 10)), "b was seen when it could be y's");
    }
}
