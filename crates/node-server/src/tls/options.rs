//! TLS versions and cipher suites, by the names that the configuration uses. Pure.
//!
//! Upstream: component-base/cli/flag (ciphersuites_flag.go).

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion};

/// Go's names of the suites that are offered here.
const OFFERED: [(&str, CipherSuite); 8] = {
    use CipherSuite as S;
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        // Upstream keeps these older spellings.
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
            S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ]
};

/// Suites that Go knows too: those of TLS 1.3, which are always offered, and old ones
/// without forward secrecy or with CBC, which never are.
const ALWAYS: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
const NEVER: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// What the configuration says about TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `tlsMinVersion`, such as `VersionTLS13`; empty for the default. Nothing before
    /// TLS 1.2 is ever spoken.
    pub min_version: String,
    /// `tlsCipherSuites`; empty for the default.
    pub cipher_suites: Vec<String>,
    /// `tlsCurvePreferences`, by their numbers; empty for the default.
    pub curves: Vec<u16>,
}

/// A setting of TLS that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsOptionsError {
    /// No such version.
    #[error("unknown TLS version {0:?} in tlsMinVersion; known are VersionTLS10 to VersionTLS13")]
    Version(String),
    /// No such suite.
    #[error("cipher suite {0} in tlsCipherSuites is not known")]
    Suite(String),
    /// None of the suites is offered.
    #[error(
        "none of the suites in tlsCipherSuites ({0}) is offered; use ECDHE with AES-GCM or ChaCha20"
    )]
    NoSuite(String),
    /// None of the curves is offered.
    #[error("none of the curves in tlsCurvePreferences ({0:?}) is offered; use 23, 24 or 29")]
    NoCurve(Vec<u16>),
}

/// The versions and the cryptography that options ask for.
pub(crate) struct Chosen {
    pub provider: Arc<CryptoProvider>,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// What was asked for and is not offered.
    pub left_out: Vec<String>,
}

/// Chooses versions and suites.
pub(crate) fn choose(options: &TlsOptions) -> Result<Chosen, TlsOptionsError> {
    let mut versions: Vec<&'static SupportedProtocolVersion> = vec![&TLS13];
    match options.min_version.as_str() {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => versions.push(&TLS12),
        "VersionTLS13" => {}
        other => return Err(TlsOptionsError::Version(other.to_owned())),
    }
    let mut provider = ring::default_provider();
    let mut left_out = Vec::new();
    if !options.cipher_suites.is_empty() {
        let mut wanted: Vec<SupportedCipherSuite> = Vec::new();
        let mut known = false;
        for name in &options.cipher_suites {
            match OFFERED.iter().find(|(offered, _)| offered == name) {
                Some((_, suite)) => {
                    let found = provider.cipher_suites.iter().find(|held| held.suite() == *suite);
                    wanted.extend(found.copied().filter(|found| !wanted.contains(found)));
                }
                None if ALWAYS.contains(&name.as_str()) => known = true,
                None if NEVER.contains(&name.as_str()) => left_out.push(name.clone()),
                None => return Err(TlsOptionsError::Suite(name.clone())),
            }
        }
        if wanted.is_empty() {
            if !known {
                return Err(TlsOptionsError::NoSuite(options.cipher_suites.join(", ")));
            }
            // Suites of TLS 1.3 alone: what comes before is not spoken then.
            versions.truncate(1);
        }
        // As in Go, the list says nothing about TLS 1.3.
        provider
            .cipher_suites
            .retain(|suite| suite.version().version == TLS13.version || wanted.contains(suite));
    }
    if !options.curves.is_empty() {
        let mut groups = Vec::new();
        for curve in &options.curves {
            let held = provider.kx_groups.iter();
            match held.copied().find(|group| u16::from(group.name()) == *curve) {
                Some(group) => groups.push(group),
                None => left_out.push(format!("curve {curve}")),
            }
        }
        if groups.is_empty() {
            return Err(TlsOptionsError::NoCurve(options.curves.clone()));
        }
        provider.kx_groups = groups;
    }
    Ok(Chosen { provider: Arc::new(provider), versions, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(version: &str, suites: &[&str]) -> Result<(usize, usize, usize), TlsOptionsError> {
        let options = TlsOptions {
            min_version: version.to_owned(),
            cipher_suites: suites.iter().map(|&suite| suite.to_owned()).collect(),
            curves: Vec::new(),
        };
        choose(&options).map(|chosen| {
            let Chosen { provider, versions, left_out } = chosen;
            (versions.len(), provider.cipher_suites.len(), left_out.len())
        })
    }

    #[test]
    fn names_are_those_of_go() {
        let gcm = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let old = "TLS_RSA_WITH_AES_128_CBC_SHA";
        for (version, suites, wanted) in [
            ("", &[][..], (2, 9, 0)),
            ("VersionTLS10", &[], (2, 9, 0)),
            ("VersionTLS13", &[], (1, 9, 0)),
            ("VersionTLS12", &[gcm, gcm], (2, 4, 0)),
            ("", &[gcm, old], (2, 4, 1)),
            ("", &["TLS_AES_128_GCM_SHA256"], (1, 3, 0)),
        ] {
            assert_eq!(with(version, suites), Ok(wanted), "{version} {suites:?}");
        }
        assert_eq!(with("TLS13", &[]), Err(TlsOptionsError::Version("TLS13".into())));
        assert_eq!(with("", &[gcm, "TLS_X"]), Err(TlsOptionsError::Suite("TLS_X".into())));
        let curves = |curves: &[u16]| {
            let options = TlsOptions { curves: curves.to_vec(), ..TlsOptions::default() };
            choose(&options).map(|chosen| chosen.provider.kx_groups.len())
        };
        assert_eq!(curves(&[29, 23, 4588]), Ok(2));
        assert_eq!(curves(&[4588]), Err(TlsOptionsError::NoCurve(vec![4588])));
        assert_eq!(with("", &[old]), Err(TlsOptionsError::NoSuite(old.into())));
    }
}
