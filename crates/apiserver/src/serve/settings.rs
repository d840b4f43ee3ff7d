//! What the server is told.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use jiff::SignedDuration;

use crate::auth::StaticToken;
use crate::certificates::Authority;
use crate::http_api::Clock;
use crate::store::Store;

use super::connection::Wrap;

/// Changes that are remembered by default. At some kilobytes each, this is tens of
/// megabytes at most.
const REMEMBERED: usize = 4096;

/// Settings of a server. The default listens on a free port of the loopback, with
/// certificates of its own.
pub struct Settings {
    /// Where to listen with TLS.
    pub listen: SocketAddr,
    /// Where to listen without TLS; the loopback only.
    pub plain: Option<SocketAddr>,
    /// Names and addresses in the server's certificate besides the one it listens on.
    pub names: Vec<String>,
    /// The authority of servers and clients; a new one if there is none.
    pub authority: Option<Arc<Authority>>,
    /// Issuer of service account tokens, and the audience that means this server.
    pub issuer: String,
    /// P-256 key in PKCS #8 that signs these tokens; a new one if there is none.
    pub token_key: Option<Vec<u8>>,
    /// How long such tokens last at most, whatever is asked for.
    pub token_lifetime_max: Option<SignedDuration>,
    /// Tokens known by heart.
    pub tokens: Vec<StaticToken>,
    /// Objects; an empty store if there is none.
    pub store: Option<Arc<Store>>,
    /// Changes that a new store remembers.
    pub remembered_changes: usize,
    /// Whether certificates are approved that nodes ask for and policy lets them have,
    /// as upstream's controller manager does.
    pub approves_nodes: bool,
    /// How long certificates last that it signs, unless a request asks for less.
    pub certificate_lifetime: SignedDuration,
    /// Whether new pods are given a token of their service account, which must exist, as
    /// upstream's admission does.
    pub mounts_tokens: bool,
    /// The time.
    pub clock: Clock,
    /// Put around every request.
    pub wrap: Option<Wrap>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            plain: None,
            names: Vec::new(),
            authority: None,
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            token_key: None,
            token_lifetime_max: None,
            tokens: Vec::new(),
            store: None,
            remembered_changes: REMEMBERED,
            approves_nodes: false,
            certificate_lifetime: SignedDuration::from_hours(24 * 365),
            mounts_tokens: false,
            clock: Arc::new(jiff::Timestamp::now),
            wrap: None,
        }
    }
}

impl Settings {
    /// Everything the server's certificate is to name.
    pub(super) fn names(&self, address: SocketAddr) -> Vec<String> {
        let mut names = vec![
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
            address.ip().to_string(),
        ];
        names.extend(self.names.iter().cloned());
        names
    }
}
