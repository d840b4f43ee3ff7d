//! Profiles: defaults for a purpose, and what may not be set against it.
//!
//! Pure. There is one, `secure`: every item of section 4.2 of the CIS Kubernetes
//! Benchmark, which is about the kubelet, passes. A profile changes defaults only;
//! settings that contradict it are refused by the checks, see `validate::profile`.

use serde_json::{Value, json};

/// The name of the one profile.
pub const SECURE: &str = "secure";

/// Processes that a pod may have, unless somebody says otherwise: as distributions
/// that set a limit have it.
const POD_PIDS: i64 = 4096;

/// Suites with forward secrecy and authenticated encryption, and those of TLS 1.3, which
/// are always offered.
pub const STRONG_CIPHERS: [&str; 11] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// Suites that are set where nobody names any: the first six, under one spelling each.
const CIPHERS: usize = 6;

/// What the profile sets where nobody else does: a field's dotted path, and its value.
/// Whom to trust and which certificate to show it cannot know; the checks ask for them.
pub(crate) fn secure_defaults() -> Vec<(&'static str, Value)> {
    vec![
        ("authentication.anonymous.enabled", json!(false)),
        ("authentication.webhook.enabled", json!(true)),
        ("authorization.mode", json!("Webhook")),
        ("readOnlyPort", json!(0)),
        ("rotateCertificates", json!(true)),
        ("tlsCipherSuites", json!(&STRONG_CIPHERS[..CIPHERS])),
        ("tlsMinVersion", json!("VersionTLS12")),
        ("podPidsLimit", json!(POD_PIDS)),
        ("seccompDefault", json!(true)),
    ]
}
