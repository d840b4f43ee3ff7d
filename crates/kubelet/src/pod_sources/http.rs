//! The HTTP source: fetches pods, and the objects beside them, at intervals.
//!
//! A fetch that fails keeps the previous pods. Upstream: pkg/kubelet/config/http.go.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::manifest::{self, Claim, Fnv128, MAX_BYTES, Origin, Problem};
use kubelet_model::{ConfigObject, Source};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::FREQUENCY_MIN;
use super::home::first_of;
use super::known::cap_pods;
use super::merge::SourceUpdate;
use super::notice::Notice;
use super::objects;
use super::url_news::{UrlNews, UrlTrouble};
use crate::ports::{HttpFetch, HttpFetchError};

/// Time for one fetch. The port promises it too; a port that breaks its promise
/// must not stop the source.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// What the HTTP source was told.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) node_name: String,
    pub(super) frequency: Duration,
}

/// Delivers the URL's pods until the receiver is gone.
pub(super) async fn run(
    config: Config,
    http: Arc<dyn HttpFetch>,
    news: UrlNews,
    sender: mpsc::Sender<SourceUpdate>,
) {
    let frequency = config.frequency.max(FREQUENCY_MIN);
    let mut poller = Poller::new(config, http);
    loop {
        let next = Instant::now() + frequency;
        let (pods, notices) = poller.poll().await;
        notices.iter().for_each(Notice::log);
        news.set(poller.trouble());
        if let Some(pods) = pods {
            let pods = pods.into_iter().map(Arc::new).collect();
            let objects = poller.objects();
            let update = SourceUpdate { source: Source::Http, pods, objects, complete: true };
            if sender.send(update).await.is_err() {
                return;
            }
        }
        sleep_until(next).await;
    }
}

/// Fetches, and remembers what it saw and said.
pub(super) struct Poller {
    config: Config,
    http: Arc<dyn HttpFetch>,
    /// Hash of the body last looked at, and what is wrong with it.
    body: Option<(String, Vec<Problem>)>,
    /// The pods it names, if something is.
    claims: BTreeSet<Claim>,
    /// What was last said.
    problem: Option<Vec<Problem>>,
    has_pods: bool,
    objects: Vec<Arc<ConfigObject>>,
}

impl Poller {
    pub(super) fn new(config: Config, http: Arc<dyn HttpFetch>) -> Self {
        let claims = BTreeSet::new();
        let objects = vec![];
        Self { config, http, body: None, claims, problem: None, has_pods: false, objects }
    }

    /// Fetches once. Returns the pods if they may have changed, and what to say.
    pub(super) async fn poll(&mut self) -> (Option<Vec<Pod>>, Vec<Notice>) {
        let body = match self.fetch().await {
            Ok(body) => body,
            Err(message) => return (None, self.complain(vec![whole(message)])),
        };
        if body.is_empty() {
            self.body = None;
            self.has_pods = false;
            self.objects.clear();
            let message = "answered nothing; no pods run from it".to_owned();
            return (Some(Vec::new()), self.complain(vec![whole(message)]));
        }
        let hash = Fnv128::hex_of(&body);
        match &self.body {
            Some((seen, problems)) if *seen == hash => (None, self.settle(problems.clone())),
            _ => self.look(&body, hash),
        }
    }

    /// ConfigMaps and Secrets that came with the pods.
    pub(super) fn objects(&self) -> Vec<Arc<ConfigObject>> {
        self.objects.clone()
    }

    /// Looks at a body that differs from the last.
    fn look(&mut self, body: &[u8], hash: String) -> (Option<Vec<Pod>>, Vec<Notice>) {
        let origin = Origin::Url(self.config.url.clone());
        match manifest::prepare(body, &self.config.node_name, &origin) {
            Ok(mut prepared) => {
                self.body = Some((hash, Vec::new()));
                self.has_pods = true;
                let origin = self.origin();
                let all = prepared.objects.iter().map(|object| (Path::new(&origin), object));
                let (objects, left_out) = objects::pick(all);
                self.objects = objects;
                let mut notices = self.settle(Vec::new());
                notices.extend(left_out.into_iter().map(|(_, notice)| notice));
                notices.extend(cap_pods(&mut prepared.pods, || self.origin()));
                if !prepared.warnings.is_empty() {
                    let (origin, warnings) = (self.origin(), prepared.warnings);
                    notices.push(Notice::Warnings { origin, warnings });
                }
                (Some(prepared.pods), notices)
            }
            Err(problems) => {
                self.body = Some((hash, problems.clone()));
                self.claims = manifest::claims(body);
                (None, self.settle(problems))
            }
        }
    }

    /// An answer came: says what is wrong with it, or that nothing is any more.
    fn settle(&mut self, problems: Vec<Problem>) -> Vec<Notice> {
        if !problems.is_empty() {
            return self.complain(problems);
        }
        let recovered = self.problem.take().map(|_| Notice::Recovered { origin: self.origin() });
        recovered.into_iter().collect()
    }

    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let get = self.http.get(&self.config.url, &self.config.headers, MAX_BYTES);
        let answer = tokio::time::timeout(FETCH_TIMEOUT, get).await;
        let fetched = answer.map_err(|_| "did not answer in time".to_owned())?;
        let fetched = fetched.map_err(|error: HttpFetchError| error.to_string())?;
        match fetched.status {
            200 => Ok(fetched.body),
            status => Err(format!("answered with status {status}, not 200")),
        }
    }

    fn complain(&mut self, problems: Vec<Problem>) -> Vec<Notice> {
        if self.problem.as_ref() == Some(&problems) {
            return Vec::new();
        }
        self.problem = Some(problems.clone());
        let kept = self.has_pods;
        vec![Notice::Broken { origin: self.origin(), problems, kept, from_copy: false }]
    }

    /// What is wrong at the moment.
    pub(super) fn trouble(&self) -> Option<UrlTrouble> {
        let problems = self.problem.as_ref()?;
        let refused = self.body.as_ref().is_some_and(|(_, own)| own == problems);
        Some(UrlTrouble {
            origin: Origin::Url(self.config.url.clone()),
            problem: first_of(problems),
            claims: refused.then(|| self.claims.clone()),
        })
    }

    fn origin(&self) -> String {
        Origin::Url(self.config.url.clone()).to_string()
    }
}

fn whole(message: String) -> Problem {
    Problem { line: None, column: None, field: String::new(), message }
}
