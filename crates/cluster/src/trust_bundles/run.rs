//! Follows bundles for as long as anybody asks for some, and answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, Call, Follower, News, Selection};
use kubelet_model::ObjectKey;
use kubelet_model::trust::TrustAsk;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cache::Cache;
use super::merge::{self, Bundle, Bundles};
use super::{CACHE_TTL, Parts, TrustError};

/// Where bundles are served, best first.
const VERSIONS: [&str; 2] =
    ["apis/certificates.k8s.io/v1beta1", "apis/certificates.k8s.io/v1alpha1"];
/// As paths name them.
const PLURAL: &str = "clustertrustbundles";
/// Pause before a server that has no bundles, or does not say, is asked again.
const RETRY: Duration = Duration::from_secs(30);

/// Keeps everybody who asks up to date.
pub struct Keeper {
    parts: Parts,
    cache: Cache,
    bundles: Bundles,
    /// The bundles are all there are.
    synced: bool,
    /// Who was answered since.
    answered: BTreeSet<ObjectKey>,
}

impl Keeper {
    /// Asks nothing of the server before somebody asks for something.
    pub fn new(parts: Parts) -> Self {
        Self {
            cache: Cache::new(parts.cache_max, CACHE_TTL),
            parts,
            bundles: Bundles::new(),
            synced: false,
            answered: BTreeSet::new(),
        }
    }

    /// Works until nobody can ask any more.
    pub async fn run(mut self) {
        let mut told = None;
        loop {
            while self.parts.asked.borrow_and_update().is_empty() {
                if self.parts.asked.changed().await.is_err() {
                    return;
                }
            }
            let error = match self.find_version().await {
                Ok(Some(version)) => match self.follow(version).await {
                    Some(error) => TrustError::Unsynced(error),
                    None => return,
                },
                Ok(None) => TrustError::Unserved,
                Err(error) => TrustError::Undiscovered(error),
            };
            self.refuse(&error);
            if told.as_ref() != Some(&error) {
                tracing::warn!(%error, "ClusterTrustBundles cannot be read; trying again");
                told = Some(error);
            }
            tokio::select! { biased;
                changed = self.parts.asked.changed() => if changed.is_err() { return },
                () = sleep(RETRY) => {}
            }
        }
    }

    /// In which version the server has bundles, if it has.
    async fn find_version(&self) -> Result<Option<&'static str>, ApiError> {
        for version in VERSIONS {
            match self.parts.api.call(Call::get(&format!("/{version}"))).await {
                Ok(list) if serves(&list) => return Ok(Some(version)),
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Follows bundles until the server has this version no more, which it tells; or
    /// until nobody can ask any more.
    async fn follow(&mut self, version: &str) -> Option<ApiError> {
        let selection = Selection { path: format!("/{version}/{PLURAL}"), query: Vec::new() };
        let (api, spread) = (Arc::clone(&self.parts.api), Arc::clone(&self.parts.spread));
        let mut follower = Follower::new(api, selection, spread);
        let mut is_failing = false;
        tracing::info!(version, "following ClusterTrustBundles");
        loop {
            tokio::select! { biased;
                changed = self.parts.asked.changed() => match changed {
                    Ok(()) => self.answer(),
                    Err(_) => return None,
                },
                news = follower.next() => match news {
                    News::Failing(error) if error.is_not_found() => return Some(error),
                    News::Failing(error) => {
                        if !is_failing {
                            tracing::warn!(%error, "cannot follow ClusterTrustBundles");
                        }
                        is_failing = true;
                        if !self.synced {
                            self.refuse(&TrustError::Unsynced(error));
                        }
                    }
                    news => {
                        is_failing = false;
                        self.note(news);
                        self.answer();
                    }
                },
            }
        }
    }

    fn note(&mut self, news: News) {
        match news {
            News::All(objects) => {
                let all: Bundles = objects.iter().filter_map(merge::read).collect();
                let old = std::mem::take(&mut self.bundles);
                let changed = |of: &Bundles, other: &Bundles| -> Vec<(String, Bundle)> {
                    let differs =
                        |(name, bundle): &(&String, &Bundle)| other.get(*name) != Some(*bundle);
                    of.iter().filter(differs).map(|(n, b)| (n.clone(), b.clone())).collect()
                };
                let mut concerned = changed(&old, &all);
                concerned.extend(changed(&all, &old));
                self.bundles = all;
                self.synced = true;
                self.forget(&concerned);
            }
            News::Put(object) => {
                let Some((name, bundle)) = merge::read(&object) else { return };
                let old = self.bundles.insert(name.clone(), bundle.clone());
                if old.as_ref() == Some(&bundle) {
                    return;
                }
                let old = old.map(|old| (name.clone(), old));
                let concerned: Vec<_> = old.into_iter().chain([(name, bundle)]).collect();
                self.forget(&concerned);
            }
            News::Gone(object) => {
                let Some((name, _)) = merge::read(&object) else { return };
                if let Some(old) = self.bundles.remove(&name) {
                    self.forget(&[(name, old)]);
                }
            }
            // Told where it is noticed.
            News::Failing(_) => {}
        }
    }

    /// These bundles have changed: what they may be a part of is made anew.
    fn forget(&mut self, changed: &[(String, Bundle)]) {
        let concerned = |key: &ObjectKey| {
            TrustAsk::of(key).is_none_or(|ask| {
                changed.iter().any(|(name, bundle)| merge::concerns(&ask, name, bundle))
            })
        };
        self.cache.drop_where(concerned);
        self.answered.retain(|key| !concerned(key));
    }

    /// Answers whoever was not answered yet.
    fn answer(&mut self) {
        let asked = Arc::clone(&self.parts.asked.borrow_and_update());
        self.answered.retain(|key| asked.contains(key));
        if !self.synced {
            return;
        }
        for key in asked.iter().filter(|key| !self.answered.contains(key)) {
            let Some(ask) = TrustAsk::of(key) else { continue };
            let now = Instant::now();
            if let Some(known) = self.cache.get(key, now) {
                self.parts.listener.told(key, Ok(Some(known)));
                continue;
            }
            let anchors = merge::anchors(&ask, &self.bundles, &*self.parts.draw);
            if let Ok(Some(anchors)) = &anchors {
                self.cache.add(key, anchors.clone(), now);
            }
            self.parts.listener.told(key, anchors);
        }
        self.answered = (*asked).clone();
    }

    /// Nobody can be answered. Who was, may go on with that.
    fn refuse(&mut self, error: &TrustError) {
        let asked = Arc::clone(&self.parts.asked.borrow_and_update());
        for key in asked.iter().filter(|key| !self.answered.contains(key)) {
            self.parts.listener.told(key, Err(error.clone()));
        }
    }
}

/// Does a list of resources name bundles?
fn serves(list: &Value) -> bool {
    let all = list["resources"].as_array().into_iter().flatten();
    all.into_iter().any(|resource| resource["name"] == PLURAL)
}
