//! Providers with programs that are not there.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use async_trait::async_trait;

use super::*;
use crate::ports::{NoPrograms, SystemClock};

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

/// Answers after a second with the number of the run as the user.
struct Counting {
    runs: Mutex<u32>,
    scope: &'static str,
    cache: &'static str,
}

#[async_trait]
impl Programs for Counting {
    fn check(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    async fn run(&self, _: ProgramCall) -> Result<Vec<u8>, ProgramError> {
        let run = {
            let mut runs = self.runs.lock().unwrap();
            *runs += 1;
            *runs
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (scope, cache) = (self.scope, self.cache);
        Ok(format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"{scope}",
               {cache} "auth":{{"*.io":{{"username":"{run}","password":"p"}}}}}}"#
        )
        .into_bytes())
    }
}

fn provider() -> Provider {
    Provider {
        name: "p".to_owned(),
        program: "/p".into(),
        match_images: vec!["*.io".to_owned()],
        cache_for: Duration::from_secs(60),
        api_version: V1.to_owned(),
        arguments: Vec::new(),
        environment: Vec::new(),
        requires_service_account: None,
    }
}

fn plugins(scope: &'static str, cache: &'static str, provider: Provider) -> Plugins {
    let programs = Counting { runs: Mutex::default(), scope, cache };
    let (clock, metrics) = (Arc::new(SystemClock::new()), ImageMetrics::default());
    Plugins::new(Arc::new(programs), clock, vec![provider], metrics)
}

/// The users that are told for an image.
async fn users(plugins: &Plugins, image: &str, account: &str) -> String {
    let logins = plugins.keyring(image, account).await.0.find(image);
    logins.iter().map(|login| login.username.as_str()).collect::<Vec<_>>().join(",")
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_for_what_they_are_good_for() {
    for (scope, want) in
        [("Image", ["1", "2", "3", "1"]), ("Registry", ["1", "1", "2", "1"]), ("Global", ["1"; 4])]
    {
        let plugins = plugins(scope, "", provider());
        for (image, want) in ["a.io/x", "a.io/y", "b.io/x", "a.io/x"].iter().zip(want) {
            assert_eq!(users(&plugins, image, "").await, want, "{scope} {image}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_end() {
    let by_default = plugins("Image", "", provider());
    let own = plugins("Image", r#""cacheDuration":"5m","#, provider());
    let never = plugins("Image", r#""cacheDuration":"0s","#, provider());
    for (plugins, want) in
        [(&by_default, ["1", "1", "2"]), (&own, ["1", "1", "1"]), (&never, ["1", "2", "3"])]
    {
        let mut seen = Vec::new();
        for pause in [0, 30, 40] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            seen.push(users(plugins, "a.io/x", "").await);
        }
        assert_eq!(seen, want);
    }
}

#[tokio::test(start_paused = true)]
async fn equal_questions_are_asked_once() {
    let plugins = plugins("Image", r#""cacheDuration":"0s","#, provider());
    let both = tokio::join!(users(&plugins, "a.io/x", ""), users(&plugins, "a.io/x", ""));
    assert_eq!(both, ("1".to_owned(), "1".to_owned()));
    assert_eq!(users(&plugins, "q.com/x", "").await, "", "no business of this provider");
}

#[tokio::test(start_paused = true)]
async fn tokens_need_service_accounts() {
    let with = |requires| Provider { requires_service_account: Some(requires), ..provider() };
    assert_eq!(users(&plugins("Image", "", with(true)), "a.io/x", "").await, "");
    assert_eq!(users(&plugins("Image", "", with(false)), "a.io/x", "").await, "1");
    assert_eq!(users(&plugins("Image", "", with(false)), "a.io/x", "builder").await, "");
}

/// Fails, and says more than it should.
struct Talkative;

#[async_trait]
impl Programs for Talkative {
    fn check(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    async fn run(&self, call: ProgramCall) -> Result<Vec<u8>, ProgramError> {
        let (status, complaint) = (ExitStatus::from_raw(0x300), "s3cret".to_owned());
        Err(ProgramError::Failed { path: call.path, status, complaint })
    }
}

#[tokio::test]
async fn failures_are_told_without_the_programs_words() {
    let (clock, metrics) = (Arc::new(SystemClock::new()), ImageMetrics::default());
    let plugins = Plugins::new(Arc::new(Talkative), clock, vec![provider()], metrics);
    let (_, failed) = plugins.keyring("a.io/x", "").await;
    assert_eq!(failed, ["p: it ended with exit status: 3; klet's log has its words"]);
}

#[tokio::test(start_paused = true)]
async fn runs_are_timed_and_failures_counted() {
    let (clock, metrics) = (Arc::new(SystemClock::new()), ImageMetrics::default());
    let broken = Plugins::new(Arc::new(NoPrograms), clock, vec![provider()], metrics.clone());
    assert_eq!(users(&broken, "a.io/x", "").await, "");
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "kubelet_credential_provider_plugin_duration_count{plugin_name=\"p\"} 1",
        "kubelet_credential_provider_plugin_errors_total{plugin_name=\"p\"} 1",
    ] {
        assert!(text.lines().any(|told| told == line), "no {line} in {text}");
    }
}
