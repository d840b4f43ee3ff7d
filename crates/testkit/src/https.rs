//! An HTTPS server on this host with a certificate that nobody vouches for.
//!
//! Owns a port on loopback and a thread. Answers every request alike and takes
//! down what it was asked. One request per connection, HTTP/1.1 only.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

// Made for tests; it opens nothing.
const CERTIFICATE: &[u8] = include_bytes!("../../kubelet/src/ports/real_probe/tests/nobody.crt");
const KEY: &[u8] = include_bytes!("../../kubelet/src/ports/real_probe/tests/nobody.key");

/// Longest that a client may leave the one thread waiting.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);

/// The server, which ends with the process.
#[derive(Debug, Clone)]
pub struct HttpsServer {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl HttpsServer {
    /// Listens, and answers with this status, such as `200 OK`.
    pub fn start(status: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let port = listener.local_addr().context("cannot read the port")?.port();
        let config = Arc::new(config()?);
        let server = Self { port, asked: Arc::default() };
        let own = server.clone();
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away, or wants no TLS, is no concern of the next one.
                let _ = own.serve(stream, &config, &answer);
            }
        });
        Ok(server)
    }

    fn serve(&self, stream: TcpStream, config: &Arc<ServerConfig>, answer: &str) -> Result<()> {
        stream.set_read_timeout(Some(CLIENT_LIMIT))?;
        let connection = ServerConnection::new(Arc::clone(config))?;
        let mut stream = BufReader::new(StreamOwned::new(connection, stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(stream.read_line(&mut head)? > 0, "the request ends early");
        }
        self.asked.lock().expect("nobody panics while holding it").push(head);
        let stream = stream.get_mut();
        stream.write_all(answer.as_bytes())?;
        stream.conn.send_close_notify();
        stream.flush()?;
        Ok(())
    }

    /// Its port, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The heads of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics while holding it").clone()
    }
}

fn config() -> Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).context("no certificate")?;
    let key = PrivateKeyDer::from_pem_slice(KEY).context("no key")?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(config)
}
