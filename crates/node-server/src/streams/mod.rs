//! Streams to commands and ports. (being written)

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{HeaderMap, Request};

use crate::answer::{self, Reply};
use crate::connection::Peer;
use crate::listen::Shared;
use crate::routes::{Names, Query};

/// Asks for a WebSocket?
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    let mut connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named =
        |value: &str| value.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    connection.any(named) && upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

pub(crate) async fn exec(
    _: &Arc<Shared>,
    _: &Arc<Peer>,
    _: &Names<'_>,
    _: &Query,
    _: Request<Incoming>,
) -> Reply {
    answer::no_route()
}
pub(crate) async fn attach(
    _: &Arc<Shared>,
    _: &Arc<Peer>,
    _: &Names<'_>,
    _: &Query,
    _: Request<Incoming>,
) -> Reply {
    answer::no_route()
}
pub(crate) async fn port_forward(
    _: &Arc<Shared>,
    _: &Arc<Peer>,
    _: &Names<'_>,
    _: &Query,
    _: Request<Incoming>,
) -> Reply {
    answer::no_route()
}
