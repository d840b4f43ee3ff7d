//! HTTPS requests to a server on this host, whose certificate is not checked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

use crate::http::{Response, parse};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Asks, with a client certificate and its key in PEM, or a token, or neither.
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    identity: Option<(&str, &str)>,
    token: Option<&str>,
) -> Result<Response> {
    let what = || format!("{method} https://127.0.0.1:{port}{path}");
    let mut stream = open(port, method, path, identity, token)?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // A server may close without saying goodbye; the answer is whole or cannot be read.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
        read => drop(read.with_context(what)?),
    }
    parse(&String::from_utf8_lossy(&answer)).with_context(what)
}

/// Asks, and leaves the answer to be read: headers, then the body as it comes.
pub fn open(
    port: u16,
    method: &str,
    path: &str,
    identity: Option<(&str, &str)>,
    token: Option<&str>,
) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let what = || format!("{method} https://127.0.0.1:{port}{path}");
    let config = trusting(identity)?;
    let server = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&server, LIMIT).with_context(what)?;
    stream.set_read_timeout(Some(LIMIT)).with_context(what)?;
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    let mut stream = StreamOwned::new(connection, stream);
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    // HTTP/1.0: no chunks, and the end of the stream ends the body.
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).with_context(what)?;
    Ok(stream)
}

/// What a connection to whatever server is made with.
pub(crate) fn trusting(identity: Option<(&str, &str)>) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let trusting = Arc::new(Trusting(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(trusting);
    let config = match identity {
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
            let chain = chain.collect::<std::result::Result<Vec<_>, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
        None => config.with_no_client_auth(),
    };
    Ok(config)
}

/// Trusts every server: tests know whom they ask.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
