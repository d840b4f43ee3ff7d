//! Certificates and keys out of PEM, with errors that say what is missing. Pure.

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why PEM text is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// There is no certificate in it.
    #[error("{0} holds no certificate (no BEGIN CERTIFICATE block)")]
    NoCertificate(&'static str),
    /// A certificate is damaged.
    #[error("certificate {number} of {what} cannot be read: {why}")]
    Certificate {
        /// Of what it is a part.
        what: &'static str,
        /// Which, from 1.
        number: usize,
        /// Why.
        why: String,
    },
    /// There is no private key, or none that is known.
    #[error(
        "the private key cannot be read: {0}; wanted is a block of PKCS #8, PKCS #1 or SEC 1, without a passphrase"
    )]
    Key(String),
    /// Certificate and key are not a pair, or the key is of a kind that is not supported.
    #[error("the certificate and the private key do not make a server: {0}")]
    Pair(String),
    /// No certificate of a bundle can vouch for clients.
    #[error("the client CA bundle is of no use: {0}")]
    Authority(String),
}

/// All certificates in a text, in order; other blocks are passed over.
///
/// # Errors
/// One is damaged, or there is none.
pub fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let number = found.len() + 1;
        let certificate = certificate.map_err(|error| PemError::Certificate {
            what,
            number,
            why: error.to_string(),
        })?;
        found.push(certificate);
    }
    if found.is_empty() { Err(PemError::NoCertificate(what)) } else { Ok(found) }
}

/// The first private key in a text.
///
/// # Errors
/// There is none.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| PemError::Key(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_is_missing() {
        let none = certificates("the serving certificate", b"nothing").unwrap_err().to_string();
        assert!(none.starts_with("the serving certificate holds no certificate"), "{none}");
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
        let broken = certificates("x", broken).unwrap_err().to_string();
        assert!(broken.starts_with("certificate 1 of x cannot be read"), "{broken}");
        let cut = certificates("x", b"-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap_err();
        assert!(matches!(cut, PemError::Certificate { number: 1, .. }), "{cut}");
        let key = private_key(b"").unwrap_err().to_string();
        assert!(key.contains("the private key cannot be read"), "{key}");
    }
}
