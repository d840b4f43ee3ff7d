//! Sources against files in memory, real files, and a scripted URL.

mod duplicates;
mod http;
mod limits;
mod mem_fs;
mod merge;
mod real;
mod scan;
mod timing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_model::PodSet;

use super::{PodSetReader, SourcePorts};
use crate::events::Recorder;
use crate::ports::{Fetched, Fs, HttpFetch, HttpFetchError, SystemClock, Tasks};

/// Long enough for a loaded machine; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A manifest of a pod.
fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: app\n    image: {image}\n"
    )
}

/// `name=image` of every desired pod, sorted.
fn pods_of(set: &PodSet) -> Vec<String> {
    let mut pods: Vec<String> = set
        .pods
        .values()
        .map(|pod| {
            let image = pod.spec().containers[0].image.as_deref().unwrap_or_default();
            format!("{}={image}", pod.name())
        })
        .collect();
    pods.sort();
    pods
}

/// Waits until the desired pods are these.
async fn expect_pods(reader: &mut PodSetReader, expected: &[&str]) {
    let wait = async {
        loop {
            let set = reader.current();
            if set.sources_ready && pods_of(&set) == expected {
                return;
            }
            reader.changed().await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        panic!("expected {expected:?}, found {:?}", pods_of(&reader.current()));
    }
}

fn ports(fs: Arc<dyn Fs>) -> SourcePorts {
    let clock = Arc::new(SystemClock::new());
    SourcePorts {
        fs,
        http: Arc::new(NoHttp),
        clock: clock.clone(),
        tasks: Tasks::default(),
        recorder: Recorder::new(clock),
        cluster: None,
    }
}

/// Fails the test if anybody asks it.
struct NoHttp;

#[async_trait]
impl HttpFetch for NoHttp {
    async fn get(
        &self,
        url: &str,
        _: &[(String, String)],
        _: usize,
    ) -> Result<Fetched, HttpFetchError> {
        panic!("nobody configured {url}")
    }
}
