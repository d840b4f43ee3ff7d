//! A node for the server to show.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use node_server::{
    Answer, Chunks, ContainerRef, LogOptions, NodeView, Page, PodFacts, StreamAsk, ViewError,
};

/// Has one pod, `default/web` with container `app`, and says what it was asked.
#[derive(Default)]
pub struct FakeView {
    pub asked: Mutex<Vec<String>>,
    /// Where streams are, or why they are not.
    pub url: Mutex<Option<Result<String, ViewError>>>,
    pub sick: Mutex<Option<&'static str>>,
}

impl FakeView {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl NodeView for FakeView {
    fn health_checks(&self) -> Vec<&'static str> {
        vec!["log", "syncloop"]
    }

    async fn health(&self, check: &str) -> Result<(), String> {
        match *self.sick.lock().unwrap() {
            Some(sick) if sick == check => Err("it has a cold".to_owned()),
            _ => Ok(()),
        }
    }

    async fn page(&self, page: Page, accept: &str) -> Result<Answer, ViewError> {
        self.note(format!("{page:?} {accept}"));
        match page {
            Page::Flagz => Err(ViewError::not_implemented("flagz")),
            Page::Metrics(_) => Ok(Answer::text("text/plain; version=0.0.4", "up 1\n")),
            _ => Ok(Answer::json("{}")),
        }
    }

    async fn pod(&self, namespace: &str, name: &str) -> Option<PodFacts> {
        let known = (namespace, name) == ("default", "web");
        known.then(|| PodFacts { uid: "u1".into(), containers: vec!["app".into()] })
    }

    async fn logs(&self, of: ContainerRef, options: LogOptions) -> Result<Chunks, ViewError> {
        self.note(format!("logs {} {options:?}", of.container));
        if options.previous {
            let why = r#"previous terminated container "app" in pod "web" not found"#;
            return Err(ViewError::new(400, why));
        }
        let lines = stream::iter(["one\n", "two\n"]).map(|line| Ok(Bytes::from(line)));
        if options.follow { Ok(lines.chain(stream::pending()).boxed()) } else { Ok(lines.boxed()) }
    }

    async fn stream_url(&self, ask: StreamAsk) -> Result<String, ViewError> {
        self.note(format!("{ask:?}"));
        let url = self.url.lock().unwrap().clone();
        url.unwrap_or_else(|| Err(ViewError::of_runtime(5, "container not found (\"app\")")))
    }

    async fn run(&self, container: ContainerRef, command: Vec<String>) -> Result<Bytes, ViewError> {
        self.note(format!("run {} {command:?}", container.container));
        Ok(Bytes::from("out"))
    }

    async fn checkpoint(
        &self,
        container: ContainerRef,
        timeout: Option<i64>,
    ) -> Result<String, ViewError> {
        self.note(format!("checkpoint {} {timeout:?}", container.container));
        match timeout {
            Some(7) => Err(ViewError::new(500, "no CRIU")),
            _ => Ok("/var/lib/kubelet/checkpoints/x.tar".into()),
        }
    }

    async fn set_verbosity(&self, level: &str) -> Result<String, ViewError> {
        self.note(format!("verbosity {level}"));
        Ok(format!("successfully set klog.logging.verbosity to {level}"))
    }
}
