//! A server on a free port, and clients of it.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api_client::{Access, Api, ApiClient, ApiError, Call, Watching};
use apiserver::certificates::{Authority, Issued};
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use node_server::{
    AuthenticationOptions, AuthorizationOptions, ConnectionLimits, Doors, Guards, Handlers,
    NodeServer, RequestKind, Requests, ServerOptions, Tls, TlsOptions,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::view::FakeView;

/// A port without TLS.
#[derive(Debug, Clone, Copy)]
pub enum Plain {
    Open,
    Health,
}

pub struct Setup {
    pub plain: Option<Plain>,
    pub authentication: AuthenticationOptions,
    pub authorization: AuthorizationOptions,
    pub handlers: Handlers,
    pub tls: TlsOptions,
    pub connections: ConnectionLimits,
    pub create_for_streams: bool,
    pub stream_idle: Duration,
    pub log_dir: PathBuf,
}

impl Default for Setup {
    /// Anonymous users who may do anything.
    fn default() -> Self {
        let authentication = AuthenticationOptions {
            anonymous: true,
            webhook: None,
            cache_ttl: Duration::from_secs(120),
        };
        Self {
            plain: None,
            authentication,
            authorization: AuthorizationOptions::AlwaysAllow,
            handlers: Handlers::default(),
            tls: TlsOptions::default(),
            connections: ConnectionLimits::default(),
            create_for_streams: false,
            stream_idle: Duration::from_secs(60),
            log_dir: "/nonexistent".into(),
        }
    }
}

/// What was heard of requests: begun, and over.
#[derive(Default)]
pub struct Heard {
    pub begun: Mutex<Vec<RequestKind>>,
    pub over: Mutex<Vec<RequestKind>>,
    pub websockets: Mutex<Vec<&'static str>>,
}

impl Requests for Heard {
    fn began(&self, kind: RequestKind) {
        self.begun.lock().unwrap().push(kind);
    }

    fn ended(&self, kind: RequestKind, _: Duration) {
        self.over.lock().unwrap().push(kind);
    }

    fn websocket(&self, subresource: &'static str) {
        self.websockets.lock().unwrap().push(subresource);
    }
}

pub struct World {
    pub address: SocketAddr,
    pub heard: Arc<Heard>,
    pub tls: Arc<Tls>,
    pub view: Arc<FakeView>,
    pub authority: Authority,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// An answer.
#[derive(Debug)]
pub struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl Told {
    pub fn is(&self, status: u16, body: &str) {
        assert_eq!((self.status.as_u16(), self.body.as_str()), (status, body));
    }
}

pub fn now() -> Timestamp {
    Timestamp::now()
}

impl World {
    pub async fn start(setup: Setup) -> Self {
        let authority = Authority::generate("test-ca", now()).unwrap();
        let tls = Arc::new(Tls::new(&setup.tls).unwrap());
        let own = authority.server("node", &["node".to_owned()], now()).unwrap();
        tls.serving().set(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
        tls.set_client_authority(Some(authority.pem().as_bytes())).unwrap();
        let tasks = Arc::new(Mutex::new(JoinSet::new()));
        let runner = Arc::downgrade(&tasks);
        let heard = Arc::new(Heard::default());
        let options = ServerOptions {
            doors: match setup.plain {
                Some(Plain::Open) => Doors::Open,
                Some(Plain::Health) => Doors::Health,
                None => Doors::Guarded(Guards {
                    node_name: "node".into(),
                    tls: Arc::clone(&tls),
                    authentication: setup.authentication,
                    authorization: setup.authorization,
                    create_for_streams: setup.create_for_streams,
                }),
            },
            handlers: setup.handlers,
            log_dir: setup.log_dir,
            stream_idle: setup.stream_idle,
            connections: setup.connections,
            requests: Arc::<Heard>::clone(&heard),
            started: None,
            clock: Arc::new(now),
            spawn: Arc::new(move |work| {
                if let Some(tasks) = runner.upgrade() {
                    tasks.lock().unwrap().spawn(work);
                }
            }),
        };
        let view = Arc::new(FakeView::default());
        let shown: Arc<FakeView> = Arc::clone(&view);
        let server = NodeServer::new(options, shown);
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tasks.lock().unwrap().spawn(server.run(listener));
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self { address, heard, tls, view, authority, tasks }
    }

    /// Connections that are over, of which none may have panicked.
    pub fn check_panics(&self) {
        let mut tasks = self.tasks.lock().unwrap();
        while let Some(ended) = tasks.try_join_next() {
            assert!(ended.is_ok(), "{ended:?}");
        }
    }

    pub fn client(&self, user: &str, group: &str) -> Issued {
        self.authority.client(user, Some(group), now()).unwrap()
    }

    pub async fn tcp(&self, from: IpAddr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(self.address).await
    }

    pub async fn connect(
        &self,
        from: IpAddr,
        own: Option<&Issued>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let config = client_config(self.authority.pem(), own);
        let name = ServerName::try_from("node").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.tcp(from).await?).await
    }

    /// Asks, on a connection of its own.
    pub async fn ask(&self, request: Request<Full<Bytes>>, own: Option<&Issued>) -> Told {
        let stream = self.connect(Ipv4Addr::LOCALHOST.into(), own).await.unwrap();
        tell(stream, request).await
    }

    pub async fn get(&self, path: &str) -> Told {
        self.ask(request("GET", path, &[]), None).await
    }
}

pub fn client_config(ca: &str, own: Option<&Issued>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
            let chain = chain.collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

pub fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path).header("host", "node");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).unwrap()
}

pub async fn tell<S>(stream: S, request: Request<Full<Bytes>>) -> Told
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let work = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.into()).unwrap();
        Told { status: head.status, headers: head.headers, body }
    };
    beside(work, connection).await
}

/// Runs work while something else runs, which may end before.
pub async fn beside<T>(work: impl Future<Output = T>, other: impl Future) -> T {
    let (mut work, mut other) = (pin!(work), pin!(other));
    tokio::select! {
        done = &mut work => return done,
        _ = &mut other => {}
    }
    work.await
}

/// An API server in front of another, which counts.
pub struct Counting {
    inner: ApiClient,
    pub calls: AtomicUsize,
}

impl Counting {
    pub fn new(kubeconfig: &std::path::Path) -> Arc<Self> {
        let text = std::fs::read(kubeconfig).unwrap();
        let access = Access::parse(&text, kubeconfig.parent().unwrap()).unwrap();
        let inner = ApiClient::new(access, "test", Arc::new(now)).unwrap();
        Arc::new(Self { inner, calls: AtomicUsize::new(0) })
    }

    pub fn take(&self) -> usize {
        self.calls.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Api for Counting {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inner.call(call).await
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        self.inner.watch(path).await
    }
}
