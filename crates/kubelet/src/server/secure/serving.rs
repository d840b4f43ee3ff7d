//! The serving certificate that the cluster signs (`serverTLSBootstrap`).
//!
//! It names the addresses of the Node object and is asked for again when these change.
//! Each new one is shown to new connections; open ones go on. Until there is one no
//! connection comes about, as upstream has it; one that expired meanwhile is shown on, so
//! that whoever does not look at it can still ask.
//! Upstream: pkg/kubelet/certificate/kubelet.go.

use std::sync::Arc;

use api_client::Api;
use cluster::certificates::{
    CertificateUser, First, Kind, ManagerParts, Pair, Store, Template, manage,
};
use cluster::node::NodeHandle;
use jiff::SignedDuration;
use node_server::Tls;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::watch;

use super::{SecureError, SecureSettings};
use crate::join::NodeCertificates;
use crate::ports::Tasks;
use crate::server::local::Local;

/// Begins to keep the certificate. A node of its own has what its files hold.
pub(super) fn start(
    tasks: &Tasks,
    settings: &SecureSettings,
    tls: &Arc<Tls>,
    api: Option<Arc<dyn Api>>,
    local: &Local,
) -> Result<(), SecureError> {
    let certificates: &NodeCertificates = &local.certificates;
    let store = Store::open(Kind::Serving.prefix(), &settings.cert_dir, settings.files.clone())?;
    let pair = store.current().unwrap_or_else(|error| {
        tracing::error!(%error, "the serving certificate cannot be used; another is asked for");
        None
    });
    let (sender, wanted) = watch::channel(None);
    let (manager, state) = manage(ManagerParts {
        kind: Kind::Serving,
        store,
        first: First { pair, forced: false, lapsed: None },
        wanted,
        api: Arc::new(move |_| api.clone().ok_or_else(|| "there is no API server".to_owned())),
        has_bootstrap: false,
        user: Box::new(Shown { tls: Arc::clone(tls), lived: certificates.lived.clone() }),
        clock: Arc::clone(&certificates.clock),
        spread: Arc::clone(&certificates.spread),
    });
    certificates.keep(Kind::Serving, state);
    tasks.spawn_vital("serving certificate", manager.run());
    let (name, dns_only) = (local.place.node_name.clone(), settings.dns_only);
    match local.cluster.clone() {
        Some(cluster) => drop(tasks.spawn(follow(cluster, name, dns_only, sender))),
        None => tracing::warn!(
            "serverTLSBootstrap needs --kubeconfig to ask for a certificate; only one that is \
             there already is shown"
        ),
    }
    Ok(())
}

/// The addresses of the Node object, for as long as it is there the last known.
async fn follow(
    cluster: NodeHandle,
    name: String,
    dns_only: bool,
    sender: watch::Sender<Option<Template>>,
) {
    let mut node = cluster.node();
    loop {
        let wanted = node
            .borrow_and_update()
            .as_ref()
            .and_then(|node| Template::serving(&name, &node.addresses(), dns_only));
        if wanted.is_some() {
            sender.send_if_modified(|known| {
                let news = *known != wanted;
                *known = wanted;
                news
            });
        }
        if node.changed().await.is_err() {
            return;
        }
    }
}

/// What new connections are shown.
struct Shown {
    tls: Arc<Tls>,
    lived: Histogram,
}

impl CertificateUser for Shown {
    fn take(&self, pair: &Pair) -> Result<(), String> {
        let identity = &pair.identity;
        let set = self.tls.serving().set(&identity.certificate, &identity.key);
        set.map_err(|error| error.to_string())
    }

    /// Whoever connects in vain is told in the log, and so is `klet why node`.
    fn lacks(&self, _: &str) {}

    fn rotated(&self, lived: SignedDuration) {
        self.lived.observe(lived.as_secs_f64());
    }
}
