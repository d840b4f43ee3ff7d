//! How far each pull under way has come, where the runtime can tell.
//!
//! Owns what is known of downloads while pulls run. A runtime lists downloads
//! without saying which pull they belong to: one that is first seen while a
//! single pull runs is that pull's, any other is nobody's. There is no such
//! thing upstream.

use std::collections::BTreeMap;
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

/// Progress of every pull under way.
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
    downloads: BTreeMap<String, PullProgress>,
}

/// A pull on the board, until dropped.
pub struct Entry<'a> {
    board: &'a Board,
    key: u64,
}

impl Board {
    /// A pull begins.
    pub fn begin(&self, image: &str) -> Entry<'_> {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        let pull = Pull { image: image.to_owned(), downloads: BTreeMap::new() };
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
        let alone = pulls.len() == 1;
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
            match pulls.values_mut().next() {
                Some(pull) if alone => {
                    pull.downloads.insert(download.name.clone(), progress);
                }
                _ => nobodys.push(download.name.clone()),
            }
        }
    }

    /// Progress of the pull of an image; `None` if it is not known.
    pub fn of(&self, image: &str) -> Option<PullProgress> {
        let state = self.lock();
        let pull = state.pulls.values().find(|pull| pull.image == image)?;
        let sum = pull.downloads.values().fold(PullProgress::default(), |sum, one| PullProgress {
            done: sum.done.saturating_add(one.done),
            total: sum.total.saturating_add(one.total),
        });
        (sum.total > 0).then_some(sum)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("progress lock: no code panics while holding it")
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
        board.of(image).map(|p| (p.done, p.total))
    }

    #[test]
    fn layers_add_up_and_stay_when_they_are_in() {
        let board = Board::default();
        let pull = board.begin("x");
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
        let _x = board.begin("x");
        board.note(&[download("a", 1, 10)]);
        let y = board.begin("y");
        board.note(&[download("a", 2, 10), download("b", 1, 10)]);
        assert_eq!((told(&board, "x"), told(&board, "y")), (Some((2, 10)), None));
        drop(y);
        board.note(&[download("a", 3, 10), download("b", 2, 10)]);
        assert_eq!(told(&board, "x"), Some((3, 10)), "b was seen when it could be y's");
    }
}
