//! What pods trust, and certificates of their own, for whoever follows them.
//!
//! Owns nothing: what the cluster's keepers say goes to the object cache, under the key
//! that tells what was asked for, and their warnings become events of pods. With its
//! feature gate off a kind has no keeper, and whoever follows it is told so.
//! Upstream: pkg/kubelet/kubelet.go (the managers it makes), pkg/kubelet/volume_host.go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_client::{Api, Clock, Spread};
use cluster::pod_certificates::{self, Credential, KeyMaker, NodeUid};
use cluster::trust_bundles::{self, Draw, TrustError};
use futures_util::future::Either;
use kubelet_model::certificate::{CHAIN, CertificateAsk, KEY};
use kubelet_model::trust::ANCHORS;
use kubelet_model::{ConfigObject, EventType, ObjectKey, ObjectKind};
use tokio::sync::watch;

use crate::events::Recorder;
use crate::object_cache::Answers;

const TRUST_OFF: &str = "ClusterTrustBundle projection is not supported: the feature gate \
                         ClusterTrustBundleProjection is off on this node; set it and \
                         ClusterTrustBundle in featureGates, or remove the source";
const CERTIFICATES_OFF: &str = "projected podCertificates are not supported: the feature gate \
                                PodCertificateRequest is off on this node; set it in \
                                featureGates, or remove the source";

/// How the keepers are made, as far as their gates are on.
#[derive(Default)]
pub(super) struct Makers {
    pub(super) trust: Option<Trust>,
    pub(super) certificates: Option<Certificates>,
}

/// What the keeper of trust works with.
pub(super) struct Trust {
    pub(super) api: Arc<dyn Api>,
    pub(super) cache_max: usize,
    pub(super) draw: Draw,
    pub(super) spread: Spread,
}

/// What the keeper of certificates works with.
pub(super) struct Certificates {
    pub(super) api: Arc<dyn Api>,
    pub(super) node: String,
    pub(super) node_uid: NodeUid,
    pub(super) recorder: Recorder,
    pub(super) keys: Arc<dyn KeyMaker>,
    pub(super) clock: Clock,
    pub(super) spread: Spread,
}

/// Tells the keepers what is asked for.
pub(super) struct Asks {
    answers: Arc<Answers>,
    trust: Option<watch::Sender<Arc<BTreeSet<ObjectKey>>>>,
    certificates: Option<watch::Sender<Arc<BTreeSet<ObjectKey>>>>,
    /// What was asked for last.
    known: BTreeSet<ObjectKey>,
}

/// Where to ask, and the keepers' work.
pub(super) fn new(
    makers: Makers,
    answers: &Arc<Answers>,
) -> (Asks, impl Future<Output = ()> + use<>) {
    let trust = makers.trust.map(|maker| {
        let (sender, asked) = watch::channel(Default::default());
        let Trust { api, cache_max, draw, spread } = maker;
        let listener = Arc::new(ToCache { answers: Arc::clone(answers), recorder: None });
        let parts = trust_bundles::Parts { api, cache_max, asked, listener, draw, spread };
        (sender, trust_bundles::Keeper::new(parts).run())
    });
    let certificates = makers.certificates.map(|maker| {
        let (sender, asked) = watch::channel(Default::default());
        let Certificates { api, node, node_uid, recorder, keys, clock, spread } = maker;
        let recorder = Some(recorder);
        let listener = Arc::new(ToCache { answers: Arc::clone(answers), recorder });
        let parts =
            pod_certificates::Parts { api, node, node_uid, asked, listener, keys, clock, spread };
        (sender, pod_certificates::Keeper::new(parts).run())
    });
    let (trust, keeps_trust) = trust.unzip();
    let (certificates, keeps_certificates) = certificates.unzip();
    let asks = Asks { answers: Arc::clone(answers), trust, certificates, known: BTreeSet::new() };
    let run = async move {
        let trust = keeps_trust.map_or(Either::Right(std::future::ready(())), Either::Left);
        let certificates =
            keeps_certificates.map_or(Either::Right(std::future::ready(())), Either::Left);
        tokio::join!(trust, certificates);
    };
    (asks, run)
}

/// Is an object made when it is asked for, by one of the keepers?
pub(super) fn is_made(key: &ObjectKey) -> bool {
    matches!(key.kind, ObjectKind::ClusterTrustBundle | ObjectKind::PodCertificate)
}

impl Asks {
    /// These are followed now, and others.
    pub(super) fn turn_to(&mut self, keys: &BTreeSet<ObjectKey>) {
        let keys: BTreeSet<ObjectKey> = keys.iter().filter(|key| is_made(key)).cloned().collect();
        // Before a keeper can hear that it is asked for again.
        self.known.difference(&keys).for_each(|key| self.answers.forget(key));
        let all = [
            (ObjectKind::ClusterTrustBundle, &self.trust, TRUST_OFF),
            (ObjectKind::PodCertificate, &self.certificates, CERTIFICATES_OFF),
        ];
        for (kind, keeper, off) in all {
            let own = keys.iter().filter(|key| key.kind == kind);
            match keeper {
                Some(keeper) => {
                    let own = Arc::new(own.cloned().collect());
                    keeper.send_if_modified(|known| {
                        let news = *known != own;
                        *known = own;
                        news
                    });
                }
                None => own.for_each(|key| self.answers.fail(key, off)),
            }
        }
        self.known = keys;
    }
}

/// Hands what the keepers say to the cache.
struct ToCache {
    answers: Arc<Answers>,
    recorder: Option<Recorder>,
}

fn object(key: &ObjectKey, values: &[(&str, &[u8])]) -> Arc<ConfigObject> {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
    Arc::new(ConfigObject {
        key: key.clone(),
        uid: String::new(),
        secret_type: String::new(),
        data: values.collect(),
        binary: BTreeMap::new(),
    })
}

impl trust_bundles::Listener for ToCache {
    fn told(&self, key: &ObjectKey, anchors: Result<Option<Vec<u8>>, TrustError>) {
        match anchors {
            Ok(anchors) => {
                let object = anchors.map(|anchors| object(key, &[(ANCHORS, &anchors)]));
                self.answers.know(key, object);
            }
            Err(error) => self.answers.fail(key, &error.to_string()),
        }
    }
}

impl pod_certificates::Listener for ToCache {
    fn issued(&self, key: &ObjectKey, credential: &Credential) {
        let values = [(KEY, credential.key.text()), (CHAIN, credential.chain.as_str())];
        let values = values.map(|(name, value)| (name, value.as_bytes()));
        self.answers.know(key, Some(object(key, &values)));
    }

    fn waits(&self, key: &ObjectKey, why: &str) {
        self.answers.fail(key, why);
    }

    fn is_over(&self, key: &ObjectKey, why: &str) {
        self.answers.end(key, why);
    }

    fn event(&self, ask: &CertificateAsk, reason: &'static str, message: String) {
        if let Some(recorder) = &self.recorder {
            recorder.record(&ask.object(), EventType::Warning, reason, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use kubelet_model::trust::TrustAsk;

    use super::*;
    use crate::object_cache;

    #[test]
    fn without_its_gate_a_source_says_what_to_do() {
        let (_, objects) = object_cache::new();
        let answers = Arc::new(objects.join_cluster());
        let (mut asks, _) = new(Makers::default(), &answers);
        let key = TrustAsk::Name("a".to_owned()).key();
        let certificate = ObjectKey::new(ObjectKind::PodCertificate, "ns", "{}");
        let map = ObjectKey::new(ObjectKind::ConfigMap, "ns", "m");
        asks.turn_to(&BTreeSet::from([key.clone(), certificate.clone(), map.clone()]));
        assert_eq!(objects.find(&key), Err(TRUST_OFF.to_owned()));
        assert_eq!(objects.find(&certificate), Err(CERTIFICATES_OFF.to_owned()));
        assert!(objects.is_awaited(&map), "others answer for it");
        asks.turn_to(&BTreeSet::from([map]));
        assert!(objects.is_awaited(&key), "it is forgotten");
    }

    #[test]
    fn what_is_over_is_over_though_it_was_known() {
        use pod_certificates::Listener as _;
        let (_, objects) = object_cache::new();
        let answers = Arc::new(objects.join_cluster());
        let key = ObjectKey::new(ObjectKind::PodCertificate, "ns", "{}");
        answers.know(&key, Some(object(&key, &[(KEY, b"k"), (CHAIN, b"c")])));
        let cache = ToCache { answers, recorder: None };
        cache.waits(&key, "late");
        let held = objects.find(&key).unwrap().unwrap();
        assert_eq!(held.value(CHAIN), Some(b"c".as_slice()), "the old one still counts");
        cache.is_over(&key, "denied");
        assert_eq!(objects.find(&key), Err("denied".to_owned()));
    }
}
