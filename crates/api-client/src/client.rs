//! The client: requests over one connection, with credentials that are kept fresh.
//!
//! Owns the connection and what it was opened with. Files are looked at now and then,
//! when something is asked or watched with a certificate; once they have changed, a new
//! connection is opened with what they hold now. Files that are of no use, as while they
//! are being exchanged, leave the connection as it is. Once there is another certificate,
//! from files, a program or somebody who renews it, watches on older connections end, so
//! that these can close; answers under way still arrive. A program that knows credentials
//! is asked when those it gave have expired, or were refused. A pace that it is given is
//! kept by all requests but watches, as upstream; its clones need not keep it. Upstream:
//! client-go rest, transport (cert_rotation.go).

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::Api;
use crate::access::{Access, Pem, Token};
use crate::asking::Asking;
use crate::error::ApiError;
use crate::pace::Pace;
use crate::renew::{self, Renewed, Renewer};
use crate::request::Call;
use crate::tls::{self, Identity, Trust};
use crate::watch::{HttpWatch, Looks, Watching, until};

/// Bytes of an answer: a list is asked for in parts.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a file with credentials.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Pause between looks at files.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A link that is dead is noticed after both, as upstream's.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_LIMIT: Duration = Duration::from_secs(15);
/// Time to connect.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Talks to one server. Cheap to clone.
#[derive(Clone)]
pub struct ApiClient {
    inner: Arc<Inner>,
    pace: Option<Pace>,
}

struct Inner {
    access: Access,
    renewed: Option<Renewed>,
    agent: HeaderValue,
    clock: Clock,
    link: Mutex<Option<Arc<Link>>>,
    /// The certificate of files or of a program, as it was last found.
    found: (Renewer, Renewed),
    /// Asks a program for credentials.
    asking: Asking,
}

/// A connection, and what it was opened with.
struct Link {
    http: Http,
    bearer: Option<HeaderValue>,
    /// The certificate, if it is one that is renewed.
    renewed: Option<Arc<Identity>>,
    /// The certificate, if it can change without being renewed.
    found: Option<Arc<Identity>>,
    until: Option<Timestamp>,
    files: Vec<(PathBuf, Stamp)>,
    looked: Instant,
}

/// What tells a file from what it becomes.
type Stamp = (u64, i64, i64, u64);

impl ApiClient {
    /// A client that connects when it is first asked.
    ///
    /// # Errors
    /// The client's own name cannot be sent.
    pub fn new(access: Access, agent: &str, clock: Clock) -> Result<Self, ApiError> {
        Self::make(access, None, agent, clock)
    }

    /// A client whose certificate somebody renews; of `access` only where the server is
    /// counts.
    ///
    /// # Errors
    /// The client's own name cannot be sent.
    pub fn renewing(
        access: Access,
        renewed: Renewed,
        agent: &str,
        clock: Clock,
    ) -> Result<Self, ApiError> {
        Self::make(access.anonymous(), Some(renewed), agent, clock)
    }

    fn make(
        access: Access,
        renewed: Option<Renewed>,
        agent: &str,
        clock: Clock,
    ) -> Result<Self, ApiError> {
        let agent = HeaderValue::from_str(agent)
            .map_err(|error| ApiError::Credentials(format!("user agent {agent:?}: {error}")))?;
        let found = renew::renewed("no certificate was found yet");
        let (link, asking) = (Mutex::new(None), Asking::default());
        let inner = Arc::new(Inner { access, renewed, agent, clock, link, found, asking });
        Ok(Self { inner, pace: None })
    }

    /// The same client over the same connection, whose requests keep this pace, or none.
    #[must_use]
    pub fn at_pace(&self, pace: Option<Pace>) -> Self {
        Self { inner: Arc::clone(&self.inner), pace }
    }

    /// Where the server is.
    pub fn server(&self) -> &str {
        &self.inner.access.server
    }

    /// Forgets the connection: whatever is asked next opens another.
    pub async fn reconnect(&self) {
        *self.inner.link.lock().await = None;
    }

    async fn send(&self, call: &Call) -> Result<(Response<Incoming>, Arc<Link>), ApiError> {
        let link = self.inner.link().await?;
        let answer = self.inner.ask(&link, call).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || !self.inner.may_have_changed() {
            return Ok((answer, link));
        }
        // The credentials may be older than those there are.
        self.inner.forget(&link).await;
        let link = self.inner.link().await?;
        Ok((self.inner.ask(&link, call).await?, link))
    }

    /// Looks whether the credentials are still those there are, now and then, for as long
    /// as it is waited for. What goes wrong is told to whoever asks next.
    fn looks(&self) -> Looks {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                drop(inner.link().await);
            }
        })
    }

    async fn answer(&self, call: &Call) -> Result<Value, ApiError> {
        let response = accepted(self.send(call).await?.0).await?;
        let body = bytes(response).await?;
        serde_json::from_slice(&body).map_err(|error| ApiError::Unusable(error.to_string()))
    }
}

#[async_trait]
impl Api for ApiClient {
    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        // Not part of the limit in time: the server has not been asked yet.
        if let Some(pace) = &self.pace {
            pace.turn().await;
        }
        let answered = timeout(call.limit, self.answer(&call)).await;
        let (server, limit) = (self.server().to_owned(), call.limit);
        answered.map_err(|_| ApiError::TimedOut { server, limit })?
    }

    async fn watch(&self, path: &str) -> Result<Box<dyn Watching>, ApiError> {
        let call = Call::get(path);
        let begin = async {
            let (response, link) = self.send(&call).await?;
            Ok::<_, ApiError>((accepted(response).await?, link))
        };
        let begun = timeout(call.limit, begin).await;
        let (server, limit) = (self.server().to_owned(), call.limit);
        let (response, link) = begun.map_err(|_| ApiError::TimedOut { server, limit })??;
        let found = Some(self.inner.found.1.clone()).zip(link.found.clone());
        let looks = found.is_some().then(|| self.looks());
        let certificate = self.inner.renewed.clone().zip(link.renewed.clone()).or(found);
        let until = until(path).map(|limit| Instant::now() + limit);
        let body = response.into_body();
        Ok(Box::new(HttpWatch::new(body, self.server(), certificate, looks, until)))
    }
}

impl Inner {
    async fn ask(&self, link: &Link, call: &Call) -> Result<Response<Incoming>, ApiError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("{}{}", self.access.server, call.path))
            .header(USER_AGENT, &self.agent)
            .header(ACCEPT, "application/json");
        if let Some(bearer) = &link.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let body = match &call.body {
            Some((kind, body)) => {
                request = request.header(CONTENT_TYPE, *kind);
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| ApiError::Unusable(error.to_string()))?;
        link.http.request(request).await.map_err(|error| {
            let mut why = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                why = format!("{why}: {error}");
                cause = error.source();
            }
            ApiError::Unreachable { server: self.access.server.clone(), why }
        })
    }

    /// Can other credentials be had than those that were refused?
    fn may_have_changed(&self) -> bool {
        let Access { certificate, token, exec, .. } = &self.access;
        exec.is_some()
            || matches!(token, Some(Token::File(_)))
            || matches!(certificate, Some((Pem::File(_), _) | (_, Pem::File(_))))
    }

    async fn forget(&self, link: &Arc<Link>) {
        let mut current = self.link.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
        }
    }

    /// The connection, or another if its credentials are old. One at a time makes it.
    async fn link(&self) -> Result<Arc<Link>, ApiError> {
        let mut current = self.link.lock().await;
        let newest = self.renewed.as_ref().map(Renewed::newest).transpose();
        let newest = newest.map_err(ApiError::Credentials)?;
        let newer = |link: &Arc<Link>| match (&link.renewed, &newest) {
            (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
            _ => false,
        };
        if let Some(link) = current.as_ref().filter(|link| !newer(link)) {
            let expired = link.until.is_some_and(|until| until <= (self.clock)());
            if !expired && link.looked.elapsed() < LOOK_EVERY {
                return Ok(Arc::clone(link));
            }
            let same = |(path, stamp): &(PathBuf, Stamp)| stamp_of(path).ok() == Some(*stamp);
            let opened = if !expired && link.files.iter().all(same) {
                Ok(link.looked_at())
            } else {
                self.open(newest).await
            };
            let link = match opened {
                Ok(link) => link,
                // The next look may find them whole.
                Err(error) if !expired => {
                    tracing::warn!(error, "changed credentials are of no use; keeping the old");
                    link.looked_at()
                }
                Err(error) => return Err(ApiError::Credentials(error)),
            };
            return Ok(Arc::clone(current.insert(Arc::new(link))));
        }
        let link = Arc::new(self.open(newest).await.map_err(ApiError::Credentials)?);
        Ok(Arc::clone(current.insert(link)))
    }

    /// Reads the credentials, and prepares a connection with them.
    async fn open(&self, renewed: Option<Arc<Identity>>) -> Result<Link, String> {
        let access = &self.access;
        let mut files = Vec::new();
        let authority =
            access.authority.as_ref().map(|pem| read_pem(pem, &mut files)).transpose()?;
        let mut identity = match &access.certificate {
            Some((certificate, key)) => Some(Identity {
                certificate: read_pem(certificate, &mut files)?,
                key: read_pem(key, &mut files)?,
            }),
            None => None,
        };
        let mut token = match &access.token {
            Some(Token::Inline(token)) => Some(token.clone()),
            Some(Token::File(path)) => Some(read_token(path, &mut files)?),
            None => None,
        };
        let mut until = None;
        if let Some(plugin) = &access.exec {
            let given = self.asking.ask(plugin).await?;
            until = given.until;
            token = given.token.or(token);
            identity = given.identity.or(identity);
        }
        let shown = renewed.as_deref().or(identity.as_ref());
        let bearer = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                .map_err(|_| "the token holds what no header can".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let trust = match (&authority, access.insecure) {
            (Some(pem), _) => Trust::Authority(pem),
            (None, true) => Trust::Anybody,
            (None, false) if access.server.starts_with("http://") => Trust::Anybody,
            (None, false) => Trust::Machine,
        };
        let http = connect(tls::config(&trust, shown)?, access.server_name.as_deref())?;
        let bearer = bearer.transpose()?;
        let found = identity.filter(|_| renewed.is_none() && self.may_have_changed());
        let found = found.map(|identity| self.found(identity)).transpose()?;
        Ok(Link { http, bearer, renewed, found, until, files, looked: Instant::now() })
    }
}

impl Inner {
    /// Ends watches of another certificate than this one, which is the newest.
    fn found(&self, identity: Identity) -> Result<Arc<Identity>, String> {
        let (renewer, newest) = &self.found;
        renewer.set(Ok(Arc::new(identity)));
        newest.newest()
    }
}

impl Link {
    /// The same, of which it is known that its files are as they were.
    fn looked_at(&self) -> Self {
        Self {
            http: self.http.clone(),
            bearer: self.bearer.clone(),
            renewed: self.renewed.clone(),
            found: self.found.clone(),
            until: self.until,
            files: self.files.clone(),
            looked: Instant::now(),
        }
    }
}

fn connect(
    tls: tokio_rustls::rustls::ClientConfig,
    server_name: Option<&str>,
) -> Result<Http, String> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    tcp.set_keepalive(Some(PING_EVERY));
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match server_name {
        Some(name) => {
            let name = ServerName::try_from(name.to_owned())
                .map_err(|error| format!("tls-server-name {name:?}: {error}"))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    let connector = builder.enable_http1().enable_http2().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_LIMIT)
        .build(connector))
}

fn stamp_of(path: &Path) -> std::io::Result<Stamp> {
    let found = fs::metadata(path)?;
    Ok((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
}

/// A file's content, and what tells it from what it becomes. The stamp is taken first:
/// what changes in between is noticed later.
fn read(path: &Path, files: &mut Vec<(PathBuf, Stamp)>) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let stamp = stamp_of(path).map_err(failed)?;
    if stamp.3 > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    let content = fs::read(path).map_err(failed)?;
    files.push((path.to_owned(), stamp));
    Ok(content)
}

fn read_pem(pem: &Pem, files: &mut Vec<(PathBuf, Stamp)>) -> Result<Vec<u8>, String> {
    match pem {
        Pem::Inline(bytes) => Ok(bytes.clone()),
        Pem::File(path) => read(path, files),
    }
}

fn read_token(path: &Path, files: &mut Vec<(PathBuf, Stamp)>) -> Result<String, String> {
    let text = String::from_utf8(read(path, files)?);
    let text = text.map_err(|_| format!("{} is no text", path.display()))?;
    match text.trim() {
        "" => Err(format!("{} is empty; it should hold a token", path.display())),
        token => Ok(token.to_owned()),
    }
}

/// The response, or what it says went wrong.
async fn accepted(response: Response<Incoming>) -> Result<Response<Incoming>, ApiError> {
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = seconds.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let body = bytes(response).await?;
    let status = serde_json::from_slice(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(1024)]).trim().to_owned();
        serde_json::json!({"message": format!("the API server answered {code}: {text}")})
    });
    Err(ApiError::of_status(&status, code.as_u16(), retry_after))
}

async fn bytes(response: Response<Incoming>) -> Result<Bytes, ApiError> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| ApiError::Unusable(format!("it broke off: {error}")))?.to_bytes())
}
