//! Follows this node's requests for as long as anybody asks for certificates, and makes
//! new ones when it is time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::{Api, Call, Follower, News, Selection, path};
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use kubelet_model::ObjectKey;
use kubelet_model::certificate::CertificateAsk;
use tokio::time::sleep;

use super::lifecycle::{Act, Life, Request};
use super::parse::{self, Identity, RequestName, Verdict};
use super::{CertificateError, KeyMaker, NewKey, Parts, keys};

/// Where requests are served.
const API: &str = "apis/certificates.k8s.io/v1beta1";
/// As paths name them.
const PLURAL: &str = "podcertificaterequests";
/// Requests that are made at a time: a node that comes back asks for all at once.
const UNDER_WAY_MAX: usize = 4;
/// So many more of those whose keys take seconds; the others need not wait for
/// them: one has its key made while the other is sent.
const SLOW_UNDER_WAY_MAX: usize = 2;
/// The longest sleep: the wall clock, which says when certificates end, may be set.
const SLEEP_MAX: Duration = Duration::from_secs(5 * 60);

/// Whose request, and what came of making it.
type Made = (ObjectKey, Result<Request, CertificateError>);

/// Keeps everybody who asks supplied.
pub struct Keeper {
    parts: Parts,
    lives: BTreeMap<ObjectKey, Entry>,
    verdicts: BTreeMap<RequestName, Verdict>,
    /// The verdicts are all there are.
    synced: bool,
    /// Nothing can be learnt of requests for now.
    is_failing: bool,
    under_way: FuturesUnordered<Abortable<BoxFuture<'static, Made>>>,
}

struct Entry {
    ask: CertificateAsk,
    life: Life,
    /// To be made, once there is room.
    is_due: bool,
    /// One is being made.
    making: Option<Making>,
}

/// Ends with the ask that a request is made for.
struct Making(AbortHandle);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Requests that are being made: those whose keys take long, and others.
#[derive(Default)]
struct Room {
    slow: usize,
    others: usize,
}

impl Room {
    fn take(&mut self, ask: &CertificateAsk) -> bool {
        let (taken, max) = if keys::is_slow(&ask.key_type) {
            (&mut self.slow, SLOW_UNDER_WAY_MAX)
        } else {
            (&mut self.others, UNDER_WAY_MAX)
        };
        let fits = *taken < max;
        *taken += usize::from(fits);
        fits
    }
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
                    // Of what was given up nobody wants to hear.
                    if let Ok(made) = made {
                        self.note_made(made);
                    }
                }
                news = follower.next() => self.note(news),
                () = sleep(wait) => {}
            }
        }
    }

    /// Who asks no more is forgotten, with the key and with what is made for it.
    fn turn_to_asked(&mut self) {
        let asked = Arc::clone(&self.parts.asked.borrow_and_update());
        self.lives.retain(|key, _| asked.contains(key));
        for key in asked.iter() {
            if !self.lives.contains_key(key)
                && let Some(ask) = CertificateAsk::of(key)
            {
                let entry = Entry { ask, life: Life::default(), is_due: false, making: None };
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
        let Self { parts, lives, verdicts, under_way, .. } = self;
        let mut room = Room::default();
        lives.values().filter(|entry| entry.making.is_some()).for_each(|entry| {
            room.take(&entry.ask);
        });
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
            if entry.is_due && room.take(&entry.ask) {
                entry.is_due = false;
                let (api, keys) = (Arc::clone(&parts.api), Arc::clone(&parts.keys));
                let node = (parts.node.clone(), (parts.node_uid)());
                let (key, ask) = (key.clone(), entry.ask.clone());
                let work: BoxFuture<'static, Made> = Box::pin(async move {
                    let made = request(&*api, &*keys, &ask, node, now).await;
                    (key, made)
                });
                let (handle, registration) = AbortHandle::new_pair();
                entry.making = Some(Making(handle));
                under_way.push(Abortable::new(work, registration));
            }
            wake_at = wake_at.into_iter().chain(entry.life.wake_at()).min();
        }
        let wait = wake_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        wait.unwrap_or(SLEEP_MAX).min(SLEEP_MAX)
    }

    fn note_made(&mut self, (key, made): Made) {
        let Some(entry) = self.lives.get_mut(&key) else { return };
        entry.making = None;
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
    keys: &dyn KeyMaker,
    ask: &CertificateAsk,
    (node, node_uid): (String, Option<String>),
    now: Timestamp,
) -> Result<Request, CertificateError> {
    let account = path("api/v1", &ask.namespace, &["serviceaccounts", &ask.account]);
    let account = api.call(Call::get(&account)).await.map_err(CertificateError::Account)?;
    let node_uid = node_uid.ok_or(CertificateError::Node)?;
    let account_uid = account["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let identity = Identity { account_uid, node, node_uid };
    let NewKey { key, proof } = keys.make(&ask.key_type).await?;
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
