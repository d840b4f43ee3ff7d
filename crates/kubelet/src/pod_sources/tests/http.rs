//! The HTTP source against a scripted URL.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use kubelet_model::{ObjectKey, ObjectKind};
use tokio::time::Instant;

use super::super::http::{Config, Poller};
use super::super::notice::Notice;
use super::super::start_with;
use super::mem_fs::MemFs;
use super::{expect_pods, manifest, ports};
use crate::ports::{Fetched, HttpFetch, HttpFetchError};
use crate::settings::Settings;

type Answer = Result<(u16, String), &'static str>;

/// Gives its answers in order, and the last one for ever.
struct Script(Mutex<VecDeque<Answer>>);

#[async_trait]
impl HttpFetch for Script {
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        _: usize,
    ) -> Result<Fetched, HttpFetchError> {
        assert_eq!(headers, [("A".to_owned(), "b".to_owned())]);
        let mut answers = self.0.lock().unwrap();
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        };
        answer
            .map(|(status, body)| Fetched { status, body: body.into_bytes() })
            .map_err(|why| HttpFetchError::Failed { url: url.to_owned(), why: why.to_owned() })
    }
}

fn script(answers: Vec<Answer>) -> Arc<Script> {
    Arc::new(Script(Mutex::new(answers.into())))
}

fn ok(body: impl Into<String>) -> Answer {
    Ok((200, body.into()))
}

fn config() -> Config {
    Config {
        url: "http://u:p@h/pods".to_owned(),
        headers: vec![("A".to_owned(), "b".to_owned())],
        node_name: "n".to_owned(),
        frequency: Duration::from_secs(20),
    }
}

/// Polls `answers` through; one line per poll.
async fn polls(answers: Vec<Answer>) -> Vec<String> {
    let count = answers.len();
    let mut poller = Poller::new(config(), script(answers));
    let mut lines = Vec::new();
    for _ in 0..count {
        let (pods, notices) = poller.poll().await;
        let pods = pods.map(|pods| format!("{} pods", pods.len()));
        let said = notices.iter().map(|notice| match notice {
            Notice::Broken { origin, problems, kept, .. } => {
                format!("{origin}: {}; kept={kept}", problems[0])
            }
            Notice::Recovered { .. } => "good again".to_owned(),
            other => format!("{other:?}"),
        });
        lines.push(pods.into_iter().chain(said).collect::<Vec<_>>().join(", "));
    }
    lines
}

fn list(items: &[&str]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|name| {
            format!("{{\"metadata\":{{\"name\":{name:?}}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\"}}]}}}}")
        })
        .collect();
    format!("{{\"apiVersion\":\"v1\",\"kind\":\"PodList\",\"items\":[{}]}}", items.join(","))
}

#[tokio::test]
async fn failures_keep_the_pods_and_are_said_once() {
    let good = manifest("a", "i");
    let lines = polls(vec![
        Err("refused"),
        Err("refused"),
        ok(&good),
        ok(&good),
        Ok((500, "oops".into())),
        Ok((500, "oops".into())),
        Err("refused"),
        ok(&good),
        ok(list(&["a", "b"])),
        ok(list(&["a", "B"])),
        ok(list(&["a", "B"])),
        ok("garbage"),
        ok(list(&["b"])),
    ])
    .await;
    let invalid = "line 1, column 141: items[1].metadata.name: must be at most 253 lower-case letters, digits, '-' and '.', and each part between dots must start and end with a letter or digit";
    assert_eq!(
        lines,
        [
            "http://***@h/pods: cannot fetch http://u:p@h/pods: refused; kept=false",
            "",
            "1 pods, good again",
            "",
            "http://***@h/pods: answered with status 500, not 200; kept=true",
            "",
            "http://***@h/pods: cannot fetch http://u:p@h/pods: refused; kept=true",
            "good again",
            "2 pods",
            &format!("http://***@h/pods: {invalid}; kept=true"),
            "",
            "http://***@h/pods: line 1, column 1: not an object; a v1 Pod starts with apiVersion and kind; kept=true",
            "1 pods, good again",
        ]
    );
}

#[tokio::test]
async fn what_is_wrong_is_told_with_the_pods_it_concerns() {
    let answers = vec![
        Err("refused"),
        ok(list(&["web", "Wrong"])),
        Ok((500, "oops".into())),
        ok(list(&["web", "Wrong"])),
        ok("metadata: {name: web-n}\nspec: {containers: [\n"),
        ok(list(&["web"])),
    ];
    let mut poller = Poller::new(config(), script(answers));
    let mut told = Vec::new();
    for _ in 0..6 {
        poller.poll().await;
        let trouble = poller.trouble();
        let named = |name| {
            let found = trouble.as_ref().and_then(|t| t.namesake("n", Some("default"), name));
            found.is_some_and(|found| found.problem.is_some())
        };
        let read = trouble.as_ref().map(|trouble| trouble.claims.is_some());
        told.push((read, named("web"), named("web-n"), named("c")));
    }
    let (unread, refused) = (Some(false), Some(true));
    assert_eq!(
        told,
        [
            (unread, false, false, false),
            (refused, true, true, false),
            (unread, false, false, false),
            (refused, true, true, false),
            (refused, true, true, false),
            (None, false, false, false),
        ]
    );
}

#[tokio::test]
async fn an_empty_answer_removes_the_pods() {
    let good = manifest("a", "i");
    let lines = polls(vec![ok(""), ok(&good), ok(""), ok(&good)]).await;
    assert_eq!(
        lines[0],
        "0 pods, http://***@h/pods: answered nothing; no pods run from it; kept=false"
    );
    assert_eq!(lines[1], "1 pods, good again");
    assert!(lines[2].starts_with("0 pods, "), "{}", lines[2]);
    assert_eq!(lines[3], "1 pods, good again", "the same pods come back");
}

#[tokio::test]
async fn an_object_that_comes_twice_is_told_of() {
    let one = "- {metadata: {name: c}, data: {k: a}}\n";
    let text = format!(
        "apiVersion: v1\nkind: ConfigMapList\nitems:\n{one}{}",
        one.replace("k: a", "k: b")
    );
    let mut poller = Poller::new(config(), script(vec![ok(&text), ok(&text)]));
    let (_, notices) = poller.poll().await;
    let (path, by) = ("http://***@h/pods".into(), "http://***@h/pods".into());
    let object = ObjectKey::new(ObjectKind::ConfigMap, "default", "c");
    assert_eq!(notices, [Notice::DuplicateObject { path, object, by }]);
    let objects = poller.objects();
    assert_eq!((objects.len(), objects[0].value("k")), (1, Some(b"a".as_slice())));
    assert_eq!(poller.poll().await.1, [], "once");
}

#[tokio::test(start_paused = true)]
async fn files_and_a_url_make_one_set() {
    let fs = MemFs::with_dir("/m");
    fs.put("/m/a", manifest("a", "file"));
    let mut ports = ports(Arc::new(fs));
    ports.http = script(vec![Err("down"), ok(manifest("a", "url")), ok(list(&[]))]);
    let settings = Settings {
        static_pod_path: Some("/m".into()),
        static_pod_url: Some("http://h/".into()),
        static_pod_url_headers: vec![("A".into(), "b".into())],
        ..Settings::for_node("n")
    };
    let started = Instant::now();
    let (mut reader, _) = start_with(&settings, &ports);
    reader.changed().await;
    assert!(!reader.current().sources_ready, "the URL has not answered");
    assert_eq!(reader.current().pods.len(), 1, "the file's pod runs meanwhile");
    expect_pods(&mut reader, &["a-n=file", "a-n=url"]).await;
    assert_eq!(started.elapsed().as_secs(), 20);
    expect_pods(&mut reader, &["a-n=file"]).await;
}

/// Panics once, then serves.
struct Fragile(Mutex<bool>);

#[async_trait]
impl HttpFetch for Fragile {
    async fn get(
        &self,
        _: &str,
        _: &[(String, String)],
        _: usize,
    ) -> Result<Fetched, HttpFetchError> {
        let first = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(!first, "the first call panics");
        Ok(Fetched { status: 200, body: manifest("a", "i").into_bytes() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_is_started_again() {
    let mut ports = ports(Arc::new(MemFs::default()));
    ports.http = Arc::new(Fragile(Mutex::new(true)));
    let settings = Settings { static_pod_url: Some("http://h/".into()), ..Settings::for_node("n") };
    let (mut reader, _) = start_with(&settings, &ports);
    expect_pods(&mut reader, &["a-n=i"]).await;
}
