//! Who asks: a certificate, a token, or nobody in particular.
//!
//! Everything shown is tried in upstream's order. Whoever shows something that proves
//! wrong is not taken for somebody who shows nothing.
//! Upstream: apiserver pkg/authentication (request/union, bearertoken, websocket).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api_client::Api;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use jiff::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::token::{TokenError, Tokens};
use super::{User, certificate};
use crate::streams::is_websocket;
use crate::tls::Tls;

/// How a WebSocket from a browser carries a token.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// `authentication` of the configuration.
#[derive(Clone)]
pub struct AuthenticationOptions {
    /// `anonymous.enabled`.
    pub anonymous: bool,
    /// `webhook.enabled`, with the API server that reviews tokens.
    pub webhook: Option<Arc<dyn Api>>,
    /// `webhook.cacheTTL`.
    pub cache_ttl: Duration,
}

/// What a request shows.
pub(crate) struct Credentials<'a> {
    pub tls: &'a Tls,
    pub chain: &'a [CertificateDer<'static>],
    pub now: Timestamp,
    /// Where from, as far as one peer is told from another.
    pub peer: IpAddr,
}

/// Somebody for whom nobody vouches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// They show nothing, or nothing that is any good.
    Unknown,
    /// They have shown too much that is no good, and have to wait.
    TooMany,
}

pub(crate) struct Authenticator {
    anonymous: bool,
    tokens: Option<Tokens>,
}

impl Authenticator {
    pub(crate) fn new(options: AuthenticationOptions) -> Self {
        let AuthenticationOptions { anonymous, webhook, cache_ttl } = options;
        Self { anonymous, tokens: webhook.map(|api| Tokens::new(api, cache_ttl)) }
    }

    /// The user, if somebody vouches for them. A token is taken out of the headers.
    pub(crate) async fn user(
        &self,
        shown: Credentials<'_>,
        headers: &mut HeaderMap,
    ) -> Result<User, Stranger> {
        let (mut wrong, mut too_many) = (false, false);
        match by_certificate(&shown) {
            Ok(Some(user)) => {
                take_tokens(headers);
                return Ok(user.authenticated());
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(%error, "a client certificate proves nothing");
                wrong = true;
            }
        }
        if let Some(tokens) = &self.tokens {
            for found in [bearer(headers), protocol(headers)] {
                let token = match found {
                    Ok(Some(token)) => token,
                    Ok(None) => continue,
                    Err(error) => {
                        tracing::debug!(error, "a token cannot be read");
                        wrong = true;
                        continue;
                    }
                };
                match tokens.user(&token, shown.peer).await {
                    Ok(Some(user)) => {
                        take_tokens(headers);
                        return Ok(User::clone(&user).authenticated());
                    }
                    Ok(None) => {}
                    Err(error) => {
                        too_many |= error == TokenError::TooMany;
                        tracing::debug!(%error, peer = %shown.peer, "a token was not accepted");
                    }
                }
                wrong = true;
            }
        }
        match (self.anonymous && !wrong, too_many) {
            (true, _) => Ok(User::anonymous()),
            (false, false) => Err(Stranger::Unknown),
            (false, true) => Err(Stranger::TooMany),
        }
    }
}

fn by_certificate(shown: &Credentials<'_>) -> Result<Option<User>, String> {
    match shown.tls.vouched(shown.chain, shown.now) {
        None => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(())) => certificate::user(&shown.chain[0]),
    }
}

fn bearer(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let value = value.to_str().map_err(|_| "the Authorization header is not text")?;
    let mut parts = value.trim().splitn(3, ' ');
    let bearer = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    let token = parts.next().filter(|token| bearer && !token.is_empty());
    Ok(token.map(str::to_owned))
}

fn protocol(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, 0);
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(TOKEN_PROTOCOL) else {
            others += 1;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
        let decoded = URL_SAFE_NO_PAD.decode(encoded).ok();
        let decoded = decoded.ok_or("invalid base64.bearer.authorization token encoding")?;
        let decoded = String::from_utf8(decoded);
        token = Some(decoded.map_err(|_| "invalid base64.bearer.authorization token")?);
    }
    match token.filter(|token| !token.is_empty()) {
        Some(_) if others == 0 => Err("missing additional subprotocol"),
        token => Ok(token),
    }
}

/// The sub-protocols that a WebSocket is offered for.
pub(crate) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',').map(str::trim))
}

/// A token is nobody else's business from here on.
fn take_tokens(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        let mut kept = String::new();
        for protocol in protocols(headers).filter(|name| !name.starts_with(TOKEN_PROTOCOL)) {
            if !kept.is_empty() {
                kept.push(',');
            }
            kept.push_str(protocol);
        }
        if let Ok(kept) = HeaderValue::from_str(&kept) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn tokens_are_read_as_upstream_reads_them() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bEaReR abc", Some("abc")),
            ("Bearer abc more", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let found = bearer(&headers(&[("authorization", value)]));
            assert_eq!(found, Ok(token.map(str::to_owned)), "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn a_websocket_may_carry_its_token_as_a_protocol() {
        let socket = |protocols: &str| {
            headers(&[
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-protocol", protocols),
            ])
        };
        let token = format!("{TOKEN_PROTOCOL}YWJj");
        let both = socket(&format!("{token}, v4.channel.k8s.io"));
        assert_eq!(protocol(&both), Ok(Some("abc".into())));
        let mut taken = both;
        take_tokens(&mut taken);
        assert_eq!(taken["sec-websocket-protocol"], "v4.channel.k8s.io");
        assert!(protocol(&socket(&token)).is_err());
        assert!(protocol(&socket(&format!("{token},{token},x"))).is_err());
        assert!(protocol(&socket(&format!("{TOKEN_PROTOCOL}!!,x"))).is_err());
        assert_eq!(protocol(&socket("v4.channel.k8s.io")), Ok(None));
        let plain = headers(&[("sec-websocket-protocol", &token)]);
        assert_eq!(protocol(&plain), Ok(None));
    }
}
