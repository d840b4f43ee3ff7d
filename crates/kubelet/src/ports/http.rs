//! Fetching a manifest from a URL.

use async_trait::async_trait;

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
