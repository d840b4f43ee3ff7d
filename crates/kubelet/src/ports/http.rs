//! Fetching a manifest from a URL.
//!
//! Owns the HTTP and HTTPS clients, built when first needed. Bounded in time,
//! bytes and redirects. Upstream: net/http as pkg/kubelet/config/http.go uses it.

pub(super) mod redirect;
#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// Time for one fetch, redirects and body included.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects followed before giving up.
const REDIRECTS_MAX: usize = 10;

/// A response's status and bounded body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// HTTP status code.
    pub status: u16,
    /// Body, at most the limit asked for.
    pub body: Vec<u8>,
}

/// Why a URL could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HttpFetchError {
    /// The URL or a header cannot be used.
    #[error("cannot ask for {url}: {why}")]
    BadRequest {
        /// The URL.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No usable response.
    #[error("cannot fetch {url}: {why}")]
    Failed {
        /// The URL.
        url: String,
        /// The cause.
        why: String,
    },
    /// The body exceeds the limit.
    #[error("{url} answered more than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: String,
        /// The limit.
        limit: usize,
    },
}

/// Fetches URLs.
#[async_trait]
pub trait HttpFetch: Send + Sync + 'static {
    /// GETs `url` with `headers`, within ten seconds and `limit` bytes.
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Fetched, HttpFetchError>;
}

type Fetcher<C> = Client<C, Empty<Bytes>>;

/// Fetches over HTTP and HTTPS.
#[derive(Default)]
pub struct HyperFetch {
    plain: OnceLock<Fetcher<HttpConnector>>,
    /// Loading the machine's roots costs memory, so only a node that is given
    /// an HTTPS URL does it.
    tls: OnceLock<Fetcher<HttpsConnector<HttpConnector>>>,
}

impl HyperFetch {
    /// A fetcher that has not built its clients yet.
    pub fn new() -> Self {
        Self::default()
    }

    async fn send(&self, uri: &Uri, headers: &HeaderMap) -> Result<Response<Incoming>, String> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers.clone();
        let answer = match uri.scheme_str() {
            Some("http") => self.plain.get_or_init(plain_client).request(request).await,
            _ => self.tls()?.request(request).await,
        };
        answer.map_err(|error| with_causes(&error))
    }

    fn tls(&self) -> Result<&Fetcher<HttpsConnector<HttpConnector>>, String> {
        if let Some(client) = self.tls.get() {
            return Ok(client);
        }
        // ring is the only provider compiled in, so choosing it cannot panic.
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| format!("cannot load the machine's root certificates: {error}"))?
            .https_only()
            .enable_http1()
            .build();
        Ok(self.tls.get_or_init(|| client(connector)))
    }

    async fn fetch(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Fetched, HttpFetchError> {
        let bad = |why: String| HttpFetchError::BadRequest { url: redirect::redact(url), why };
        let failed = |why: String| HttpFetchError::Failed { url: redirect::redact(url), why };
        let (plain, login) = redirect::take_login(url);
        let mut uri = redirect::parse(&plain).map_err(bad)?;
        let mut headers = header_map(headers).map_err(bad)?;
        if let Some(login) = login
            && !headers.contains_key(AUTHORIZATION)
        {
            let value = HeaderValue::try_from(login).map_err(|error| bad(error.to_string()))?;
            headers.insert(AUTHORIZATION, value);
        }
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&uri, &headers).await.map_err(failed)?;
            let location = response.headers().get(LOCATION);
            let status = response.status().as_u16();
            match location {
                Some(location) if matches!(status, 301 | 302 | 303 | 307 | 308) => {
                    let location = location.to_str().map_err(|error| failed(error.to_string()))?;
                    let next = redirect::resolve(&uri, location).map_err(failed)?;
                    redirect::drop_secrets(&mut headers, &uri, &next);
                    uri = next;
                }
                _ => {
                    let body = read(response.into_body(), url, limit).await?;
                    return Ok(Fetched { status, body });
                }
            }
        }
        Err(failed(format!("redirected more than {REDIRECTS_MAX} times")))
    }
}

#[async_trait]
impl HttpFetch for HyperFetch {
    async fn get(
        &self,
        url: &str,
        headers: &[(String, String)],
        limit: usize,
    ) -> Result<Fetched, HttpFetchError> {
        let fetch = self.fetch(url, headers, limit);
        tokio::time::timeout(FETCH_TIMEOUT, fetch).await.unwrap_or_else(|_| {
            let why = format!("no complete answer within {} s", FETCH_TIMEOUT.as_secs());
            Err(HttpFetchError::Failed { url: redirect::redact(url), why })
        })
    }
}

fn plain_client() -> Fetcher<HttpConnector> {
    client(HttpConnector::new())
}

fn client<C>(connector: C) -> Fetcher<C>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    // Fetches are rare, and an idle connection is one the server may drop.
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    let agent = concat!("klet/", env!("CARGO_PKG_VERSION"));
    map.insert(USER_AGENT, HeaderValue::from_static(agent));
    for (name, value) in headers {
        let parsed =
            HeaderName::try_from(name).map_err(|error| format!("header {name:?}: {error}"))?;
        // The value may be a secret, so it stays out of the message.
        let value = HeaderValue::try_from(value)
            .map_err(|error| format!("value of header {name:?}: {error}"))?;
        if parsed == USER_AGENT {
            map.insert(parsed, value);
        } else {
            map.append(parsed, value);
        }
    }
    Ok(map)
}

async fn read(body: Incoming, url: &str, limit: usize) -> Result<Vec<u8>, HttpFetchError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(HttpFetchError::TooLarge { url: redirect::redact(url), limit })
        }
        Err(error) => {
            let why = format!("the answer broke off: {error}");
            Err(HttpFetchError::Failed { url: redirect::redact(url), why })
        }
    }
}

/// hyper's errors name the cause only in their sources.
fn with_causes(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
