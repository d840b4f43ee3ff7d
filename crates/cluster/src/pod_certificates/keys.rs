//! Private keys, and the proof that one is held.
//!
//! Keys live in memory only, and are never printed. Upstream: generateKeyAndProof in
//! pkg/kubelet/podcertificate.

use std::fmt;

use kubelet_model::quote;
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519, SignatureAlgorithm,
};

use crate::pem;

/// A private key, as PEM of PKCS #8.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(String);

impl PrivateKey {
    /// The text, for the file of the pod it is for.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// That there is one, but not which.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// Why there is no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nobody knows such keys.
    #[error("while generating keypair: unknown key type {}", quote::go(.0))]
    Unknown(String),
    /// Others could make it.
    #[error(
        "while generating keypair: this release makes no keys of type {0}; set keyType to \
         ECDSAP256, ECDSAP384 or ED25519"
    )]
    Unsupported(&'static str),
    /// It could not be made.
    #[error("while generating keypair: {0}")]
    Failed(#[from] rcgen::Error),
}

/// Kinds of keys that the API knows and this release cannot make: the library that makes
/// keys makes none of them.
const UNSUPPORTED: [&str; 3] = ["RSA3072", "RSA4096", "ECDSAP521"];

/// A new key, and a request of PKCS #10 that says nothing but which key it is for.
pub(super) fn make(key_type: &str) -> Result<(PrivateKey, Vec<u8>), KeyError> {
    let algorithm: &'static SignatureAlgorithm = match key_type {
        "ECDSAP256" => &PKCS_ECDSA_P256_SHA256,
        "ECDSAP384" => &PKCS_ECDSA_P384_SHA384,
        "ED25519" => &PKCS_ED25519,
        other => {
            return Err(match UNSUPPORTED.into_iter().find(|known| *known == other) {
                Some(known) => KeyError::Unsupported(known),
                None => KeyError::Unknown(other.to_owned()),
            });
        }
    };
    let pair = KeyPair::generate_for(algorithm)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&pair)?;
    let key = PrivateKey(pem::block("PRIVATE KEY", &pair.serialize_der()));
    Ok((key, request.der().to_vec()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, PublicKeyData};

    use super::*;

    #[test]
    fn a_request_is_empty_and_proves_that_the_key_is_held() {
        for (kind, algorithm) in [
            ("ECDSAP256", &PKCS_ECDSA_P256_SHA256),
            ("ECDSAP384", &PKCS_ECDSA_P384_SHA384),
            ("ED25519", &PKCS_ED25519),
        ] {
            let (key, request) = make(kind).unwrap();
            let pair = KeyPair::from_pem(key.text()).unwrap();
            assert_eq!(pair.algorithm(), algorithm, "{kind}");
            // Reading it checks its signature.
            let der = request.as_slice().into();
            let read = CertificateSigningRequestParams::from_der(&der).unwrap();
            assert_eq!(read.public_key.der_bytes(), pair.der_bytes(), "{kind}");
            assert_eq!(read.params.distinguished_name, DistinguishedName::new());
            assert!(read.params.subject_alt_names.is_empty());
            let (other, _) = make(kind).unwrap();
            assert_ne!(key, other, "each is another");
            assert_eq!(format!("{key:?}"), "PrivateKey");
        }
    }

    #[test]
    fn keys_that_cannot_be_made_are_named() {
        for kind in UNSUPPORTED {
            let why = make(kind).unwrap_err().to_string();
            assert!(why.contains(&format!("no keys of type {kind}; set keyType to")), "{why}");
        }
        let why = make("RSA1\"").unwrap_err().to_string();
        assert_eq!(why, r#"while generating keypair: unknown key type "RSA1\"""#);
    }
}
