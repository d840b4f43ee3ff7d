//! TLS of the server: what it shows, and whose certificates it believes.
//!
//! Owns the serving certificate and the bundle that vouches for clients; both can be
//! replaced while connections are open. A client's certificate is asked for, not
//! demanded, and the handshake only proves that the client has its key: who vouches for
//! it is looked at with every request, as upstream does, so that a bundle that changes,
//! or a certificate that expires, counts for connections that are open already.
//! Upstream: cmd/kubelet/app/server.go (InitializeTLS), dynamiccertificates.

mod options;
mod pem;

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

pub use options::{TlsOptions, TlsOptionsError};
pub use pem::{PemError, certificates, private_key};

/// The certificate that the server shows. New connections get the newest one.
pub struct ServingCertificate {
    provider: Arc<CryptoProvider>,
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCertificate {
    /// Shows this certificate, with its chain, from now on.
    ///
    /// # Errors
    /// The texts are damaged or do not belong together; the certificate before stays.
    pub fn set(&self, certificate: &[u8], key: &[u8]) -> Result<(), PemError> {
        let chain = pem::certificates("the serving certificate", certificate)?;
        let key = pem::private_key(key)?;
        let pair = CertifiedKey::from_der(chain, key, &self.provider)
            .map_err(|error| PemError::Pair(error.to_string()))?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
        Ok(())
    }

    /// Whether there is one; until then no connection comes about.
    pub fn is_set(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate").field("set", &self.is_set()).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Who vouches for clients.
struct Bundle {
    verifier: Arc<dyn ClientCertVerifier>,
    config: Arc<ServerConfig>,
}

/// All that TLS needs.
pub struct Tls {
    serving: Arc<ServingCertificate>,
    provider: Arc<CryptoProvider>,
    versions: Vec<&'static SupportedProtocolVersion>,
    /// How connections are begun while nobody vouches for clients.
    plain: Arc<ServerConfig>,
    bundle: Mutex<Option<Arc<Bundle>>>,
}

impl Tls {
    /// TLS with these options, without a certificate yet.
    ///
    /// # Errors
    /// An option names something unknown.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsOptionsError> {
        let chosen = options::choose(options)?;
        for name in &chosen.left_out {
            tracing::warn!(%name, "a cipher suite or curve of the configuration is not offered");
        }
        let provider = chosen.provider;
        let current = RwLock::new(None);
        let serving = Arc::new(ServingCertificate { provider: Arc::clone(&provider), current });
        let plain = configure(&provider, &chosen.versions, None, &serving);
        let bundle = Mutex::new(None);
        Ok(Self { serving, provider, versions: chosen.versions, plain, bundle })
    }

    /// The certificate that is shown.
    pub fn serving(&self) -> &Arc<ServingCertificate> {
        &self.serving
    }

    /// Believes clients whom these certificates vouch for; without any, none are asked
    /// for. Call it again whenever the file has changed.
    ///
    /// # Errors
    /// The bundle is damaged; the one before stays.
    pub fn set_client_authority(&self, pem: Option<&[u8]>) -> Result<(), PemError> {
        let bundle = pem.map(|pem| self.bundle(pem)).transpose()?;
        *self.bundle.lock().unwrap_or_else(PoisonError::into_inner) = bundle.map(Arc::new);
        Ok(())
    }

    fn bundle(&self, pem: &[u8]) -> Result<Bundle, PemError> {
        let (mut roots, mut unusable) = (RootCertStore::empty(), None);
        let certificates = pem::certificates("the client CA bundle", pem)?;
        for (index, certificate) in certificates.into_iter().enumerate() {
            // An authority of an odd kind must not take the others with it.
            if let Err(error) = roots.add(certificate) {
                let number = index + 1;
                tracing::warn!(number, %error, "a certificate of the client CA bundle is of no use");
                let (what, why) = ("the client CA bundle", error.to_string());
                unusable = Some(PemError::Certificate { what, number, why });
            }
        }
        if let Some(error) = unusable.filter(|_| roots.is_empty()) {
            return Err(error);
        }
        let asks = AskOnly {
            hints: roots.subjects(),
            algorithms: self.provider.signature_verification_algorithms,
        };
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .map_err(|error| PemError::Authority(error.to_string()))?;
        let asks = Some(Arc::new(asks));
        let config = configure(&self.provider, &self.versions, asks, &self.serving);
        Ok(Bundle { verifier, config })
    }

    fn current(&self) -> Option<Arc<Bundle>> {
        self.bundle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let config = self.current().map(|bundle| Arc::clone(&bundle.config));
        TlsAcceptor::from(config.unwrap_or_else(|| Arc::clone(&self.plain)))
    }

    /// Does somebody vouch for this client, now? None if nobody is asked.
    pub(crate) fn vouched(
        &self,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Option<Result<(), String>> {
        let (own, between) = chain.split_first()?;
        let bundle = self.current()?;
        // Every order of them is tried, for anybody who connects.
        if between.len() > BETWEEN_MAX {
            return Some(Err(format!("more than {BETWEEN_MAX} intermediate certificates")));
        }
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = bundle.verifier.verify_client_cert(own, between, now);
        Some(verified.map(|_| ()).map_err(|error| error.to_string()))
    }
}

/// Certificates between a client's own and the authority's; real ones have one or two.
const BETWEEN_MAX: usize = 4;

fn configure(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    asks: Option<Arc<AskOnly>>,
    serving: &Arc<ServingCertificate>,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .expect("the suites were chosen for these versions");
    let builder = match asks {
        Some(asks) => builder.with_client_cert_verifier(asks),
        None => builder.with_no_client_auth(),
    };
    let resolver: Arc<dyn ResolvesServerCert> = Arc::<ServingCertificate>::clone(serving);
    let mut config = builder.with_cert_resolver(resolver);
    // Streams are upgrades, which only HTTP/1.1 has; everybody who asks a kubelet for
    // something (API servers, metrics-server, Prometheus) takes HTTP/1.1 for the rest as
    // well. Without HTTP/2 one connection is one request, so that the bound on
    // connections bounds the work.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Asks for a certificate and takes any whose key the client has.
#[derive(Debug)]
struct AskOnly {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // [`Tls::vouched`] looks at it, with every request.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever connects may send any certificates, and every order of them is tried.
    #[test]
    fn long_chains_are_not_followed() {
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let tls = Tls::new(&TlsOptions::default()).unwrap();
        tls.set_client_authority(Some(made.pem().as_bytes())).unwrap();
        let chain = vec![made.der().clone(); BETWEEN_MAX + 2];
        let why = tls.vouched(&chain, Timestamp::UNIX_EPOCH).unwrap().unwrap_err();
        assert!(why.contains("intermediate"), "{why}");
        let shorter = tls.vouched(&chain[..2], Timestamp::UNIX_EPOCH).unwrap();
        assert!(!shorter.unwrap_err().contains("intermediate"));
    }
}
