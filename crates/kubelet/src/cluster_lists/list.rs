//! One list of the API server, followed and kept in brief.
//!
//! Owns the newest state of the list. Never decides what it means.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Follower, News, Selection, Spread};
use ordered_watch as watch;
use serde_json::Value;
use tokio::time::timeout;

use crate::ports::Ports;

/// What is kept, by namespace and name.
pub(super) type Kept<T> = BTreeMap<(String, String), T>;

/// Reads the list; nothing before it was read for the first time.
#[derive(Clone)]
pub(super) struct List<T>(watch::Receiver<Option<Arc<Kept<T>>>>);

impl<T> List<T> {
    pub(super) fn now(&self) -> Option<Arc<Kept<T>>> {
        self.0.borrow().clone()
    }

    /// Returns once it was read.
    pub(super) async fn read(&self) {
        if self.0.clone().wait_for(Option::is_some).await.is_err() {
            // Who follows it is gone only when the agent ends.
            std::future::pending::<()>().await;
        }
    }

    /// The list, once it was read; nothing if that takes longer.
    pub(super) async fn first(&self, longest: Duration) -> Option<Arc<Kept<T>>> {
        let mut reader = self.0.clone();
        let read = timeout(longest, reader.wait_for(Option::is_some)).await;
        read.ok()?.ok()?.clone()
    }
}

#[cfg(test)]
impl<T> List<T> {
    /// A list that was not read yet, and who can change that.
    pub(super) fn unread() -> (watch::Sender<Option<Arc<Kept<T>>>>, Self) {
        let (writer, reader) = watch::channel(None);
        (writer, Self(reader))
    }
}

/// Follows a list, of those objects whose `fields` are like that. `read` keeps what is needed of an object, if anything is.
pub(super) fn follow<T: Clone + Send + Sync + 'static>(
    api: &Arc<dyn Api>,
    path: &'static str,
    fields: Option<&'static str>,
    read: fn(&Value) -> Option<T>,
    ports: &Ports,
) -> List<T> {
    let jitter = ports.jitter.clone();
    let spread: Spread = Arc::new(move |longest| jitter.below(longest));
    let query = fields.map(|fields| ("fieldSelector", fields.to_owned()));
    let selection = Selection { path: path.to_owned(), query: query.into_iter().collect() };
    let follower = Follower::new(Arc::clone(api), selection, spread);
    let (writer, reader) = watch::channel(None);
    ports.tasks.spawn(run(follower, path, read, writer));
    List(reader)
}

async fn run<T: Clone>(
    mut follower: Follower,
    path: &'static str,
    read: fn(&Value) -> Option<T>,
    writer: watch::Sender<Option<Arc<Kept<T>>>>,
) {
    let mut said = String::new();
    loop {
        match follower.next().await {
            News::All(objects) => {
                said.clear();
                let kept = objects.iter().filter_map(|object| Some((key(object), read(object)?)));
                writer.send_replace(Some(Arc::new(kept.collect())));
            }
            News::Put(object) => change(&writer, key(&object), read(&object)),
            News::Gone(object) => change(&writer, key(&object), None),
            News::Failing(error) => {
                let text = error.to_string();
                if text != said {
                    tracing::warn!(path, error = text, "list of the API server is not followed");
                    said = text;
                }
            }
        }
    }
}

fn change<T: Clone>(
    writer: &watch::Sender<Option<Arc<Kept<T>>>>,
    key: (String, String),
    new: Option<T>,
) {
    writer.send_modify(|all| {
        let all = Arc::make_mut(all.get_or_insert_default());
        match new {
            Some(new) => drop(all.insert(key, new)),
            None => drop(all.remove(&key)),
        }
    });
}

fn key(object: &Value) -> (String, String) {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}
