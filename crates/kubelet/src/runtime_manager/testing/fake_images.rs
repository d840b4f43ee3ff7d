//! The images of the fake runtime, for tests that care about them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use cri::{CallError, CallErrorKind, Download, v1};
use tokio::time::sleep;

/// What a test says and sees.
#[derive(Default)]
pub(crate) struct FakeImages {
    /// Images that are there.
    pub(crate) images: BTreeSet<String>,
    /// How the next pulls fail, and with which code.
    pub(crate) pull_errors: VecDeque<CallErrorKind>,
    /// Fails every look at an image.
    pub(crate) inspect_error: Option<CallErrorKind>,
    /// `image user` of every pull begun.
    pub(crate) pulls: Vec<String>,
    /// What is being downloaded.
    pub(crate) downloads: Vec<Download>,
    /// Pulls under way.
    pub(crate) now: usize,
    /// The most pulls there ever were at once.
    pub(crate) most: usize,
}

impl FakeImages {
    pub(super) fn list(&self) -> Vec<v1::Image> {
        let image = |name: &String| v1::Image {
            id: format!("id-{name}"),
            repo_tags: vec![name.clone()],
            ..Default::default()
        };
        self.images.iter().map(image).collect()
    }

    pub(super) fn status(&self, image: &str) -> Result<Option<v1::Image>, CallError> {
        if let Some(kind) = self.inspect_error.clone() {
            return Err(failed(kind));
        }
        let id = format!("id-{image}");
        let present = self.images.contains(image);
        Ok(present.then(|| v1::Image { id, size: 123, ..Default::default() }))
    }
}

/// Takes five seconds.
pub(super) async fn pull(
    images: &Mutex<FakeImages>,
    image: String,
    auth: Option<v1::AuthConfig>,
) -> Result<String, CallError> {
    let error = {
        let mut state = images.lock().unwrap();
        let user = auth.map_or("-".to_owned(), |auth| auth.username);
        state.pulls.push(format!("{image} {user}"));
        state.now += 1;
        state.most = state.most.max(state.now);
        state.pull_errors.pop_front()
    };
    sleep(Duration::from_secs(5)).await;
    let mut state = images.lock().unwrap();
    state.now -= 1;
    match error {
        Some(kind) => Err(failed(kind)),
        None => {
            let id = format!("id-{image}");
            state.images.insert(image);
            Ok(id)
        }
    }
}

fn failed(kind: CallErrorKind) -> CallError {
    CallError { call: "a call", object: String::new(), kind }
}
