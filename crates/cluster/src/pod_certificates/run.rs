//! Follows this node's requests for as long as anybody asks for certificates, and makes
//! new ones when it is time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Call, Follower, News, Selection, path};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use kubelet_model::ObjectKey;
use kubelet_model::certificate::CertificateAsk;
use tokio::time::sleep;

use super::lifecycle::{Act, Life, Request};
use super::parse::{self, Identity, RequestName, Verdict};
use super::{CertificateError, Parts, keys};

/// Where requests are served.
const API: &str = "apis/certificates.k8s.io/v1beta1";
/// As paths name them.
const PLURAL: &str = "podcertificaterequests";
/// Requests that are made at a time: a node that comes back asks for all at once.
const UNDER_WAY_MAX: usize = 4;
/// The longest sleep: the wall clock, which says when certificates end, may be set.
const SLEEP_MAX: Duration = Duration::from_secs(5 * 60);

/// Whose request, which of its requests, and what came of making it.
type Made = (ObjectKey, u64, Result<Request, CertificateError>);

/// Keeps everybody who asks supplied.
pub struct Keeper {
    parts: Parts,
    lives: BTreeMap<ObjectKey, Entry>,
    verdicts: BTreeMap<RequestName, Verdict>,
    /// The verdicts are all there are.
    synced: bool,
    /// Nothing can be learnt of requests for now.
    is_failing: bool,
    under_way: FuturesUnordered<BoxFuture<'static, Made>>,
    /// Requests begun so far: tells the request of an ask from that of an earlier one.
    turns: u64,
}

struct Entry {
    ask: CertificateAsk,
    life: Life,
    /// To be made, once there is room.
    is_due: bool,
    turn: u64,
}

impl Keeper {
    /// Asks nothing of the server before somebody asks for something.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            lives: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            synced: false,
            is_failing: false,
            under_way: FuturesUnordered::new(),
            turns: 0,
        }
    }

    /// Works until nobody can ask any more.
    pub async fn run(mut self) {
        while self.parts.asked.borrow_and_update().is_empty() {
            if self.parts.asked.changed().await.is_err() {
                return;
            }
        }
        let selector = format!("spec.nodeName={}", self.parts.node);
        let selection = Selection {
            path: format!("/{API}/{PLURAL}"),
            query: vec![("fieldSelector", selector)],
        };
        let (api, spread) = (Arc::clone(&self.parts.api), Arc::clone(&self.parts.spread));
        let mut follower = Follower::new(api, selection, spread);
        loop {
            self.turn_to_asked();
            let wait = self.step();
            tokio::select! { biased;
                changed = self.parts.asked.changed() => if changed.is_err() { return },
                Some(made) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.note_made(made);
                }
                news = follower.next() => self.note(news),
                () = sleep(wait) => {}
            }
        }
    }

    /// Who asks no more is forgotten, with the key.
    fn turn_to_asked(&mut self) {
        let asked = Arc::clone(&self.parts.asked.borrow_and_update());
        self.lives.retain(|key, _| asked.contains(key));
        for key in asked.iter() {
            if !self.lives.contains_key(key)
                && let Some(ask) = CertificateAsk::of(key)
            {
                let entry = Entry { ask, life: Life::default(), is_due: false, turn: 0 };
                self.lives.insert(key.clone(), entry);
            }
        }
    }

    fn note(&mut self, news: News) {
        let read = |object| Some((parse::name_of(object)?, parse::verdict(object)));
        let was_failing = std::mem::replace(&mut self.is_failing, matches!(news, News::Failing(_)));
        match news {
            News::All(objects) => {
                self.verdicts = objects.iter().filter_map(read).collect();
                self.synced = true;
            }
            News::Put(object) => self.verdicts.extend(read(&object)),
            News::Gone(object) => {
                if let Some(name) = parse::name_of(&object) {
                    self.verdicts.remove(&name);
                }
            }
            News::Failing(error) => {
                let error = CertificateError::Follow(error);
                if !was_failing {
                    tracing::warn!(%error, "certificates of pods have to wait");
                }
                if !self.synced {
                    let why = error.to_string();
                    self.lives.keys().for_each(|key| self.parts.listener.waits(key, &why));
                }
            }
        }
    }

    /// Does for everybody what it is time for, and tells for how long nothing more is.
    fn step(&mut self) -> Duration {
        if !self.synced {
            return SLEEP_MAX;
        }
        let now = (self.parts.clock)();
        let Self { parts, lives, verdicts, under_way, turns, .. } = self;
        let mut wake_at: Option<Timestamp> = None;
        for (key, entry) in lives.iter_mut() {
            let verdict = |name: &RequestName| verdicts.get(name).cloned();
            for act in entry.life.step(verdict, &*parts.spread, now) {
                match act {
                    Act::Request => entry.is_due = true,
                    Act::Issued(credential) => {
                        tracing::info!(
                            pod = entry.ask.uid,
                            volume = entry.ask.volume,
                            "certificate issued"
                        );
                        parts.listener.issued(key, &credential);
                    }
                    Act::Wait(why) => parts.listener.waits(key, &why),
                    Act::Over(why) => parts.listener.is_over(key, &why),
                    Act::Event(reason, message) => {
                        parts.listener.event(&entry.ask, reason, message);
                    }
                }
            }
            if entry.is_due && under_way.len() < UNDER_WAY_MAX {
                *turns += 1;
                (entry.is_due, entry.turn) = (false, *turns);
                let api = Arc::clone(&parts.api);
                let node = (parts.node.clone(), (parts.node_uid)());
                let (key, ask, turn) = (key.clone(), entry.ask.clone(), *turns);
                under_way.push(Box::pin(async move {
                    (key, turn, request(&*api, &ask, node, now).await)
                }));
            }
            wake_at = wake_at.into_iter().chain(entry.life.wake_at()).min();
        }
        let wait = wake_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        wait.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)
    }

    fn note_made(&mut self, (key, turn, made): Made) {
        let Some(entry) = self.lives.get_mut(&key).filter(|entry| entry.turn == turn) else {
            // Nobody asks any more; the request goes with its pod.
            return;
        };
        if let Err(error) = &made {
            let ask = &entry.ask;
            tracing::warn!(pod = ask.uid, volume = ask.volume, %error, "no request for a certificate; trying again");
            self.parts.listener.waits(&key, &error.to_string());
        }
        entry.life.note(made.ok(), &*self.parts.spread, (self.parts.clock)());
    }
}

/// Makes a key and asks for a certificate for it.
async fn request(
    api: &dyn Api,
    ask: &CertificateAsk,
    (node, node_uid): (String, Option<String>),
    now: Timestamp,
) -> Result<Request, CertificateError> {
    let (key, proof) = keys::make(&ask.key_type)?;
    let account = path("api/v1", &ask.namespace, &["serviceaccounts", &ask.account]);
    let account = api.call(Call::get(&account)).await.map_err(CertificateError::Account)?;
    let node_uid = node_uid.ok_or(CertificateError::Node)?;
    let account_uid = account["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let identity = Identity { account_uid, node, node_uid };
    let call =
        Call::post(&path(API, &ask.namespace, &[PLURAL]), parse::body(ask, &identity, &proof));
    let made = api.call(call).await.map_err(CertificateError::Create)?;
    let name = parse::name_of(&made).ok_or_else(|| {
        let why = "a PodCertificateRequest without a name".to_owned();
        CertificateError::Create(api_client::ApiError::Unusable(why))
    })?;
    let created = made["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|text| text.parse().ok()).unwrap_or(now);
    Ok(Request { key, name, created })
}
