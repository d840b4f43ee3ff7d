//! Private keys, and the proof that one is held.
//!
//! Keys live in memory only, and are never printed. What the library that signs can make, it
//! makes; RSA and P-521 keys are made here, and every RSA key is checked by that library
//! before it is used. Upstream: generateKeyAndProof in pkg/kubelet/podcertificate.

mod ec521;
mod rsa;

use std::fmt;

use kubelet_model::quote;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
};
use ring::rand::{SecureRandom, SystemRandom};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, construct_der};

use crate::pem;

/// A private key, as PEM of PKCS #8.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(String);

impl PrivateKey {
    fn new(der: &[u8]) -> Self {
        Self(pem::block("PRIVATE KEY", der))
    }

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

/// A key that nobody has used yet.
#[derive(Debug)]
pub struct NewKey {
    /// The key.
    pub key: PrivateKey,
    /// A request of PKCS #10 that says nothing but which key it is for.
    pub proof: Vec<u8>,
}

/// Why there is no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nobody knows such keys.
    #[error(
        "while generating keypair: unknown key type {}; set keyType to RSA3072, RSA4096, \
         ECDSAP256, ECDSAP384, ECDSAP521 or ED25519", quote::go(.0)
    )]
    Unknown(String),
    /// The kernel gives no randomness.
    #[error("while generating keypair: the system has no random numbers; it is tried again")]
    Random,
    /// Chance was against it, or the random numbers are not random.
    #[error(
        "while generating RSA {0} key: none of many random numbers is a usable prime; it is \
         tried again"
    )]
    NoPrime(u32),
    /// Nobody wants it any more.
    #[error("while generating keypair: nobody asks for it any more")]
    Unwanted,
    /// Whoever made it is gone.
    #[error("while generating keypair: its thread has crashed; it is tried again")]
    Crashed,
    /// It could not be made.
    #[error("while generating keypair: {0}")]
    Failed(#[from] rcgen::Error),
}

/// The kinds of keys that the API knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa(u32),
    P256,
    P384,
    P521,
    Ed25519,
}

impl Kind {
    fn of(key_type: &str) -> Option<Self> {
        Some(match key_type {
            "RSA3072" => Self::Rsa(3072),
            "RSA4096" => Self::Rsa(4096),
            "ECDSAP256" => Self::P256,
            "ECDSAP384" => Self::P384,
            "ECDSAP521" => Self::P521,
            "ED25519" => Self::Ed25519,
            _ => return None,
        })
    }
}

/// Does a key of this type take seconds, where others take milliseconds?
pub(super) fn is_slow(key_type: &str) -> bool {
    matches!(Kind::of(key_type), Some(Kind::Rsa(_)))
}

/// A new key. Whoever makes one that takes long is asked now and then whether to stop.
pub(super) fn make(key_type: &str, is_unwanted: &dyn Fn() -> bool) -> Result<NewKey, KeyError> {
    let kind = Kind::of(key_type).ok_or_else(|| KeyError::Unknown(key_type.to_owned()))?;
    let (der, pair) = match kind {
        Kind::P521 => return Ok(ec521::make(&mut random()?)),
        Kind::P256 | Kind::P384 => {
            let of_256 = kind == Kind::P256;
            let curve = if of_256 { &PKCS_ECDSA_P256_SHA256 } else { &PKCS_ECDSA_P384_SHA384 };
            let pair = KeyPair::generate_for(curve)?;
            (pair.serialize_der(), pair)
        }
        Kind::Ed25519 => {
            let mut seed = [0; 32];
            SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
            let der = ed25519(&seed);
            let pair = KeyPair::try_from(der.as_slice())?;
            (der, pair)
        }
        Kind::Rsa(bits) => {
            let der = rsa::make(bits, &mut random()?, is_unwanted)?;
            // Checks that its parts belong together.
            let pair = KeyPair::try_from(der.as_slice())?;
            (der, pair)
        }
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let proof = params.serialize_request(&pair)?.der().to_vec();
    Ok(NewKey { key: PrivateKey::new(&der), proof })
}

fn random() -> Result<StdRng, KeyError> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
    Ok(StdRng::from_seed(seed))
}

/// A key as the first version of PKCS #8 has it: the library writes the second, which holds
/// the public key too and which OpenSSL does not read.
fn ed25519(seed: &[u8; 32]) -> Vec<u8> {
    let algorithm = |writer: DERWriter<'_>| {
        writer.write_sequence(|writer| writer.next().write_oid(&oid(&[1, 3, 101, 112])));
    };
    pkcs8(algorithm, &construct_der(|writer| writer.write_bytes(seed)))
}

fn pkcs8(algorithm: impl FnOnce(DERWriter<'_>), key: &[u8]) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_u8(0);
            algorithm(writer.next());
            writer.next().write_bytes(key);
        });
    })
}

fn oid(parts: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(parts)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateSigningRequestParams, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData};

    use super::*;

    #[test]
    fn a_request_is_empty_and_proves_that_the_key_is_held() {
        for (kind, algorithm) in [
            ("RSA3072", &PKCS_RSA_SHA256),
            ("RSA4096", &PKCS_RSA_SHA256),
            ("ECDSAP256", &PKCS_ECDSA_P256_SHA256),
            ("ECDSAP384", &PKCS_ECDSA_P384_SHA384),
            ("ED25519", &PKCS_ED25519),
        ] {
            let NewKey { key, proof } = make(kind, &|| false).unwrap();
            assert!(key.text().starts_with("-----BEGIN PRIVATE KEY-----\n"), "{kind}");
            assert_eq!(format!("{key:?}"), "PrivateKey");
            // Version 0 follows the head of the whole.
            let der = pem::blocks(key.text()).remove(0);
            let head = if der[1] < 0x80 { 2 } else { 2 + usize::from(der[1] & 0x7f) };
            assert_eq!(der[head..head + 3], [2, 1, 0], "{kind}");
            let pair = KeyPair::from_pem(key.text()).unwrap();
            assert_eq!(pair.algorithm(), algorithm, "{kind}");
            // Reading it checks its signature.
            let read = CertificateSigningRequestParams::from_der(&proof.as_slice().into()).unwrap();
            assert_eq!(read.public_key.der_bytes(), pair.der_bytes(), "{kind}");
            assert_eq!(read.params.distinguished_name, DistinguishedName::new());
            assert!(read.params.subject_alt_names.is_empty());
        }
    }

    #[test]
    fn each_key_is_another() {
        for kind in ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"] {
            let [one, other] = [(); 2].map(|()| make(kind, &|| false).unwrap().key);
            assert_ne!(one, other, "{kind}");
        }
    }

    #[test]
    fn keys_that_nobody_knows_are_named() {
        let why = make("RSA1\"", &|| false).unwrap_err().to_string();
        let expected = r#"while generating keypair: unknown key type "RSA1\""; set keyType to RSA"#;
        assert!(why.starts_with(expected), "{why}");
        assert!(is_slow("RSA3072") && is_slow("RSA4096") && !is_slow("ECDSAP521"));
    }

    #[test]
    fn work_that_nobody_wants_ends() {
        assert_eq!(make("RSA4096", &|| true).unwrap_err(), KeyError::Unwanted);
    }
}
