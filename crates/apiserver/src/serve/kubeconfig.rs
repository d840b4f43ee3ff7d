//! Kubeconfig files for clients of this server.
//!
//! Pure. JSON is YAML, so nothing needs quoting rules of its own.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::certificates::Issued;

/// How a client proves who it is.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// With a certificate.
    Certificate(Issued),
    /// With a token.
    Token(String),
    /// Not at all.
    Anonymous,
}

/// The text of a kubeconfig.
pub fn kubeconfig(url: &str, ca_pem: &str, credentials: &Credentials) -> String {
    let user = match credentials {
        Credentials::Certificate(issued) => json!({
            "client-certificate-data": STANDARD.encode(&issued.certificate),
            "client-key-data": STANDARD.encode(&issued.key),
        }),
        Credentials::Token(token) => json!({"token": token}),
        Credentials::Anonymous => json!({}),
    };
    let cluster = json!({"server": url, "certificate-authority-data": STANDARD.encode(ca_pem)});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "klet",
        "clusters": [{"name": "klet", "cluster": cluster}],
        "users": [{"name": "klet", "user": user}],
        "contexts": [{"name": "klet", "context": {"cluster": "klet", "user": "klet"}}],
    });
    format!("{config:#}\n")
}
