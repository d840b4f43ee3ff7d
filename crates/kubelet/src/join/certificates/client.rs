//! The client certificate: who is asked for it with what, and who uses it.
//!
//! Writes `--kubeconfig` where that is due. An expired certificate ends nothing: upstream
//! ends the process, so that a new one starts with the bootstrap kubeconfig; here the
//! bootstrap kubeconfig is used at once, and pods are left alone.

use std::path::Path;
use std::sync::Arc;

use api_client::{Access, Api, ApiClient, Pem, Renewed, Renewer, renewed};
use cluster::certificates::plan::{Begin, Means};
use cluster::certificates::{
    ApiOf, BootstrapParts, CertificateUser, First, KEY_FILE, Kind, ManagerParts, Pair, Store,
    Template, bootstrap, manage, write_kubeconfig,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::standing::of_certificate;
use super::{Credentials, NodeCertificates, StateReader};
use crate::join::AGENT;
use crate::join::config::{self, JoinError};
use crate::ports::Tasks;

/// The way to the API server, and the certificate that is kept for it.
pub struct Client {
    /// Opens connections.
    pub connect: Arc<dyn Fn() -> Result<ApiClient, api_client::ApiError> + Send + Sync>,
    kept: Option<(Renewer, Store, First)>,
}

impl Client {
    /// What is there; writes the kubeconfig if it is to point at a certificate to come.
    ///
    /// # Errors
    /// The certificate's files, or the kubeconfig, cannot be used.
    pub fn new(of: &Credentials, certificates: &NodeCertificates) -> Result<Self, JoinError> {
        let clock = Arc::clone(&certificates.clock);
        let access = of.access.clone();
        if of.begin == Begin::AsGiven {
            let connect = move || ApiClient::new(access.clone(), AGENT, Arc::clone(&clock));
            return Ok(Self { connect: Arc::new(connect), kept: None });
        }
        let bootstraps = of.begin != Begin::Renewing;
        let given = match &access.certificate {
            Some((Pem::File(certificate), Pem::File(key))) if !bootstraps => {
                Some((certificate.clone(), key.clone()))
            }
            _ => None,
        };
        let store = Store::open(Kind::Client.prefix(), &of.cert_dir, given)?;
        if of.begin == Begin::BootstrapRenewing {
            write_kubeconfig(&of.kubeconfig, &access, &store.current_path())?;
        }
        let embedded = access.certificate.as_ref().filter(|_| !bootstraps);
        let first = first(&store, embedded, of.lapsed, clock());
        let (renewer, renewed): (_, Renewed) = renewed("the node has no client certificate yet");
        let connect =
            move || ApiClient::renewing(access.clone(), renewed.clone(), AGENT, Arc::clone(&clock));
        Ok(Self { connect: Arc::new(connect), kept: Some((renewer, store, first)) })
    }
}

/// What is there: the store's own, unless it is of no use and the kubeconfig holds one.
fn first(
    store: &Store,
    embedded: Option<&(Pem, Pem)>,
    lapsed: Option<Timestamp>,
    now: Timestamp,
) -> First {
    let kept = store.current().unwrap_or_else(|error| {
        tracing::error!(%error, "the client certificate cannot be used; another is asked for");
        None
    });
    let lapsed = kept.as_ref().map(|pair| pair.leaf.not_after).filter(|at| *at < now).or(lapsed);
    if let Some(pair) = kept.clone().filter(|pair| !pair.leaf.is_expired(now)) {
        return First { pair: Some(pair), forced: false, lapsed: None };
    }
    if let Some((Pem::Inline(certificate), Pem::Inline(key))) = embedded {
        // As kubeadm gives it to control planes: replaced at the first opportunity.
        match store.update(certificate, key, now) {
            Ok(pair) => return First { pair: Some(pair), forced: true, lapsed },
            Err(error) => tracing::error!(%error, "the kubeconfig's certificate is not kept"),
        }
    }
    First { pair: kept, forced: false, lapsed }
}

/// Begins to keep the certificate, if one is kept.
pub fn start(
    tasks: &Tasks,
    of: &Credentials,
    node: &str,
    client: Client,
    api: Arc<dyn Api>,
    certificates: &NodeCertificates,
) -> Option<StateReader> {
    let (renewer, store, first) = client.kept?;
    let clock = Arc::clone(&certificates.clock);
    let spread = Arc::clone(&certificates.spread);
    let user = Box::new(Connections(renewer));
    let api = api_of(of, api, Arc::clone(&clock));
    let state = if of.begin == Begin::BootstrapOnce {
        let (path, access, pem) = (of.kubeconfig.clone(), of.access.clone(), store.current_path());
        let (work, state) = bootstrap(BootstrapParts {
            node: node.to_owned(),
            store,
            key_path: of.cert_dir.join(KEY_FILE),
            lapsed: first.lapsed,
            api,
            write_kubeconfig: Box::new(move || write_kubeconfig(&path, &access, &pem)),
            user,
            clock,
            spread,
        });
        tasks.spawn_vital("certificate bootstrap", work.run());
        state
    } else {
        let (sender, wanted) = watch::channel(Some(Template::client(node)));
        let (work, state) = manage(ManagerParts {
            kind: Kind::Client,
            store,
            first,
            wanted,
            api,
            has_bootstrap: of.bootstrap.is_some(),
            user,
            clock,
            spread,
        });
        tasks.spawn_vital("client certificate", async move {
            // What is wanted never changes.
            let _sender = sender;
            work.run().await;
        });
        state
    };
    certificates.keep(Kind::Client, state.clone());
    Some(state)
}

/// Files are read anew each time: whoever mends the node replaces them.
fn api_of(of: &Credentials, own: Arc<dyn Api>, clock: api_client::Clock) -> ApiOf {
    let (kubeconfig, bootstrap) = (of.kubeconfig.clone(), of.bootstrap.clone());
    Arc::new(move |means| {
        let access = match (means, &bootstrap) {
            (Means::Own, _) => return Ok(Arc::clone(&own)),
            (Means::Bootstrap, Some(path)) => {
                config::access("bootstrap-kubeconfig", path).map_err(|error| error.to_string())?
            }
            _ => given(&kubeconfig, clock())?,
        };
        let client = ApiClient::new(access, AGENT, Arc::clone(&clock));
        Ok(Arc::new(client.map_err(|error| error.to_string())?))
    })
}

/// What the kubeconfig holds, if it is any good.
fn given(path: &Path, now: Timestamp) -> Result<Access, String> {
    let access = config::access("kubeconfig", path).map_err(|error| error.to_string())?;
    if access.token.is_none() && access.exec.is_none() {
        let hopeless = |why: String| {
            format!(
                "--kubeconfig {} holds no credentials to ask for a certificate with: {why}; write \
                 another, or give --bootstrap-kubeconfig",
                path.display()
            )
        };
        let expiry = of_certificate(&access).map_err(hopeless)?;
        if expiry < now {
            return Err(hopeless(format!("its certificate expired at {expiry}")));
        }
    }
    Ok(access)
}

/// Connections to the API server.
struct Connections(Renewer);

impl CertificateUser for Connections {
    fn take(&self, pair: &Pair) -> Result<(), String> {
        self.0.set(Ok(Arc::clone(&pair.identity)));
        Ok(())
    }

    fn lacks(&self, why: &str) {
        self.0.set(Err(why.to_owned()));
    }

    /// Only of serving certificates is it told how long they lived, as upstream.
    fn rotated(&self, _: SignedDuration) {}
}

#[cfg(test)]
mod tests {
    use apiserver::certificates::Authority;

    use super::*;

    /// Whether the store and the kubeconfig hold a certificate, and of when; then whose is
    /// used, whether it is replaced at once, and whether one had expired.
    #[test]
    fn what_is_kept_counts_before_what_is_embedded() {
        let now = Timestamp::now();
        let old = now.checked_sub(SignedDuration::from_hours(24 * 400)).unwrap();
        let authority = Authority::generate("ca", old).unwrap();
        for (kept, embedded, expected) in [
            (None, None, (None, false, false)),
            (Some(now), None, (Some("kept"), false, false)),
            (Some(now), Some(now), (Some("kept"), false, false)),
            (None, Some(now), (Some("embedded"), true, false)),
            (Some(old), Some(now), (Some("embedded"), true, true)),
            (Some(old), None, (Some("kept"), false, true)),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open("kubelet-client", dir.path(), None).unwrap();
            if let Some(at) = kept {
                let made = authority.client("kept", None, at).unwrap();
                let (certificate, key) = (made.certificate.as_bytes(), made.key.as_bytes());
                store.update(certificate, key, old).unwrap();
            }
            let embedded = embedded.map(|at| {
                let made = authority.client("embedded", None, at).unwrap();
                (Pem::Inline(made.certificate.into_bytes()), Pem::Inline(made.key.into_bytes()))
            });
            let found = first(&store, embedded.as_ref(), None, now);
            let name = found.pair.as_ref().map(|pair| pair.leaf.common_name.as_str());
            assert_eq!((name, found.forced, found.lapsed.is_some()), expected);
            let in_force = store.current().unwrap().map(|pair| pair.leaf.common_name);
            assert_eq!(in_force.as_deref(), name, "what is used is in force");
        }
    }

    #[test]
    fn a_kubeconfig_without_hope_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        let cluster = "clusters: [{name: k, cluster: {server: 'https://h'}}]\n\
                       contexts: [{name: c, context: {cluster: k, user: u}}]\ncurrent-context: c\n";
        std::fs::write(&path, format!("{cluster}users: [{{name: u, user: {{}}}}]\n")).unwrap();
        let error = given(&path, Timestamp::now()).unwrap_err();
        assert!(error.contains("give --bootstrap-kubeconfig"), "{error}");
        std::fs::write(&path, format!("{cluster}users: [{{name: u, user: {{token: t}}}}]\n"))
            .unwrap();
        assert!(given(&path, Timestamp::now()).is_ok());
    }
}
