//! TLS with a server: who vouches for it, and who asks.

use std::fmt;
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt as _;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Who vouches for the server.
pub(crate) enum Trust<'a> {
    /// Certificates in PEM.
    Authority(&'a [u8]),
    /// Those the machine knows.
    Machine,
    /// Nobody needs to.
    Anybody,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and the authority.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl Identity {
    /// Whether both can be read and belong together.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| format!("the key cannot be read: {error}"))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|error| format!("the certificate and the key are no pair: {error}"))?;
        Ok(())
    }
}

/// How large it is, but never what.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a certificate of {} bytes", self.certificate.len())
    }
}

/// How connections are opened.
pub(crate) fn config(
    trust: &Trust<'_>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let builder = match trust {
        Trust::Authority(pem) => builder.with_root_certificates(roots(pem)?),
        Trust::Machine => {
            let roots = builder.with_native_roots();
            roots.map_err(|error| format!("cannot read the machine's certificates: {error}"))?
        }
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(schemes)))
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain = certificates(certificate)?;
            let key = PrivateKeyDer::from_pem_slice(key)
                .map_err(|error| format!("the client's key cannot be read: {error}"))?;
            let set = builder.with_client_auth_cert(chain, key);
            set.map_err(|error| format!("the client's certificate cannot be used: {error}"))?
        }
    };
    // A session that is resumed would keep the identity it began with.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Those that can be used: an authority of an odd kind must not take the others with it.
fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let (mut roots, mut unusable) = (RootCertStore::empty(), None);
    for (index, certificate) in certificates(pem)?.into_iter().enumerate() {
        if let Err(error) = roots.add(certificate) {
            let number = index + 1;
            tracing::warn!(number, %error, "a certificate of the server's authorities is of no use");
            unusable = Some(error);
        }
    }
    match unusable {
        Some(error) if roots.is_empty() => {
            Err(format!("no certificate of the authority can be used: {error}"))
        }
        _ => Ok(roots),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no certificate in PEM".to_owned()),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("certificates cannot be read: {error}")),
    }
}

/// Accepts every certificate, also those too old or odd for the verifier to read.
#[derive(Debug)]
struct AnyServer(Vec<SignatureScheme>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use apiserver::certificates::Authority;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn one_authority_of_no_use_leaves_the_others() {
        let good = Authority::generate("ca", Timestamp::now()).expect("an authority");
        let good = good.pem().to_owned();
        let odd = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
        for (pem, expected) in [
            (good.clone(), Some(1)),
            (format!("{odd}{good}"), Some(1)),
            (format!("{good}{odd}{good}"), Some(2)),
            (odd.to_owned(), None),
            (String::new(), None),
        ] {
            let found = roots(pem.as_bytes()).map(|roots| roots.len());
            assert_eq!(found.clone().ok(), expected, "{found:?}");
        }
        let why = roots(odd.as_bytes()).expect_err("nobody vouches");
        assert!(why.starts_with("no certificate of the authority can be used"), "{why}");
    }
}
