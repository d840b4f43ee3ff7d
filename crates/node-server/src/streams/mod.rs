//! Streams to commands and ports: from the client to the container runtime's own server.
//!
//! The runtime says where it serves a stream; the client's upgrade is carried there and
//! both ends are joined, byte for byte. containerd speaks SPDY/3.1 and the older
//! WebSocket protocols, up to version 4. What it does not speak is translated here, as
//! upstream's kubelet does since v1.36 (ExtendWebSocketsToKubelet): commands over
//! version 5 of the WebSocket protocol, and SPDY inside a WebSocket for ports. An API
//! server that does not know that this node can do so translates by itself.
//! Upstream: pkg/kubelet/server/server.go, apimachinery util/proxy (upgradeaware.go),
//! apiserver util/proxy (streamtranslator.go, streamtunnel.go).

mod options;
mod runtime;
mod splice;
mod translate;
mod tunnel;
mod websocket;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::response;
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};

use crate::answer::{self, Reply};
use crate::auth::protocols;
use crate::connection::Peer;
use crate::handle::{container_of, pod_of};
use crate::listen::Shared;
use crate::requests::Counted;
use crate::routes::{Names, Query};
use crate::view::{Stdio, StreamAsk, ViewError};
use runtime::{Dialed, dial};
use translate::{PROTOCOL as TRANSLATED, Translation};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const STREAM_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Asks for another protocol?
fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Asks for a WebSocket?
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    is_upgrade(headers) && upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// A request for a stream, and where it came from.
struct Asked<'a> {
    shared: &'a Arc<Shared>,
    peer: &'a Arc<Peer>,
    request: Request<Incoming>,
}

/// Runs a command in a container.
pub(crate) async fn exec(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    names: &Names<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Reply {
    let ask = |stdio| StreamAsk::Exec {
        container: container_of(names),
        command: query.all("command").map(str::to_owned).collect(),
        stdio,
    };
    command(Asked { shared, peer, request }, names, query, "exec", ask).await
}

/// Joins what a container runs.
pub(crate) async fn attach(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    names: &Names<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Reply {
    let ask = |stdio| StreamAsk::Attach { container: container_of(names), stdio };
    command(Asked { shared, peer, request }, names, query, "attach", ask).await
}

async fn command(
    asked: Asked<'_>,
    names: &Names<'_>,
    query: &Query,
    subresource: &'static str,
    ask: impl FnOnce(Stdio) -> StreamAsk,
) -> Reply {
    let url = async {
        let stdio = options::stdio(query)?;
        pod_of(asked.shared, names).await?;
        Ok::<_, ViewError>((stdio, asked.shared.view.stream_url(ask(stdio)).await?))
    };
    let (stdio, url) = match url.await {
        Ok(found) => found,
        Err(why) => return answer::refused(&why),
    };
    let headers = asked.request.headers();
    let wants_translation = is_websocket(headers) && protocols(headers).any(|p| p == TRANSLATED);
    if asked.shared.handlers.websockets && wants_translation {
        asked.shared.requests.websocket(subresource);
        return translated(asked, url, stdio);
    }
    proxied(asked, &url).await
}

/// Carries connections to ports of a pod.
pub(crate) async fn port_forward(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    names: &Names<'_>,
    query: &Query,
    request: Request<Incoming>,
) -> Reply {
    let headers = request.headers();
    let socket = is_websocket(headers);
    let tunnels = shared.handlers.websockets && socket && tunnel::is_wanted(headers);
    let url = async {
        let ports = if socket && !tunnels { options::ports(query)? } else { Vec::new() };
        let pod = pod_of(shared, names).await?;
        if names.uid.is_some_and(|uid| uid != pod.uid) {
            return Err(ViewError::new(404, "pod not found"));
        }
        let ask = StreamAsk::PortForward {
            namespace: names.namespace.to_owned(),
            pod: names.pod.to_owned(),
            uid: pod.uid,
            ports,
        };
        shared.view.stream_url(ask).await
    };
    let url = match url.await {
        Ok(url) => url,
        Err(why) => return answer::refused(&why),
    };
    let asked = Asked { shared, peer, request };
    if tunnels {
        shared.requests.websocket("portforward");
        tunnelled(asked, &url).await
    } else {
        proxied(asked, &url).await
    }
}

/// What of a client's header is for the runtime.
fn forwarded(headers: &HeaderMap, peer: &Peer) -> HeaderMap {
    let mut sent = HeaderMap::new();
    for (name, value) in headers {
        let own = [HOST, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING];
        if !own.contains(name) && name != FORWARDED_FOR {
            sent.append(name.clone(), value.clone());
        }
    }
    let before = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut path: Vec<String> = before.map(str::to_owned).collect();
    path.push(peer.address.ip().to_canonical().to_string());
    if let Ok(path) = HeaderValue::from_str(&path.join(", ")) {
        sent.insert(FORWARDED_FOR, path);
    }
    sent
}

fn failed(why: &str) -> Reply {
    tracing::warn!(error = why, "a stream could not be begun");
    answer::error(StatusCode::INTERNAL_SERVER_ERROR, why)
}

/// Joins client and runtime as they are.
async fn proxied(asked: Asked<'_>, url: &str) -> Reply {
    let Asked { shared, peer, mut request } = asked;
    if !is_upgrade(request.headers()) {
        return failed("Upgrade request required");
    }
    let headers = forwarded(request.headers(), peer);
    let (head, stream, already) = match dial(url, request.method().clone(), headers).await {
        Ok(Dialed::Upgraded { head, stream, already }) => (*head, stream, already),
        Ok(Dialed::Refused(reply)) => return *reply,
        Err(why) => return failed(&why),
    };
    let client = hyper::upgrade::on(&mut request);
    let work = splice::run(client, stream, already, shared.stream_idle);
    keep(shared, peer, &request, work);
    switched(head)
}

/// Runs the work of a stream; its connection is counted until it ends.
fn keep(
    shared: &Shared,
    peer: &Arc<Peer>,
    request: &Request<Incoming>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let peer = Arc::clone(peer);
    let counted = request.extensions().get::<Arc<Counted>>().cloned();
    // Whoever may have a stream has shown enough, and no longer waits to be evicted.
    peer.ticket.prove();
    (shared.spawn)(Box::pin(async move {
        work.await;
        drop((peer, counted));
    }));
}

/// The runtime's own words about the switch.
fn switched(head: response::Parts) -> Reply {
    let mut reply = Response::new(answer::full(""));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in &head.headers {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            reply.headers_mut().append(name.clone(), value.clone());
        }
    }
    reply
}

/// A WebSocket to a client whose command is reached over SPDY.
fn translated(asked: Asked<'_>, url: String, stdio: Stdio) -> Reply {
    let Asked { shared, peer, mut request } = asked;
    let reply = match websocket::accept(&request, TRANSLATED) {
        Ok(reply) => reply,
        Err(refused) => return *refused,
    };
    let client: OnUpgrade = hyper::upgrade::on(&mut request);
    let translation = Translation { url, stdio, idle: shared.stream_idle };
    keep(shared, peer, &request, translation.run(client));
    reply
}

/// SPDY to the runtime inside a WebSocket to the client.
async fn tunnelled(asked: Asked<'_>, url: &str) -> Reply {
    let Asked { shared, peer, mut request } = asked;
    let mut headers = forwarded(request.headers(), peer);
    websocket::remove_headers(&mut headers);
    headers.insert(UPGRADE, HeaderValue::from_static(runtime::SPDY));
    headers.remove(&STREAM_VERSION);
    for version in tunnel::versions(request.headers()) {
        headers.append(&STREAM_VERSION, version);
    }
    let (head, stream, already) = match dial(url, Method::POST, headers).await {
        Ok(Dialed::Upgraded { head, stream, already }) => (head, stream, already),
        Ok(Dialed::Refused(reply)) => return *reply,
        Err(why) => return failed(&why),
    };
    if !runtime::speaks_spdy(&head.headers) {
        return failed("unable to upgrade: missing upgrade headers in response");
    }
    let chosen = head.headers.get(&STREAM_VERSION).and_then(|chosen| chosen.to_str().ok());
    let protocol = format!("{}{}", tunnel::PREFIX, chosen.unwrap_or_default().trim());
    let reply = match websocket::accept(&request, &protocol) {
        Ok(reply) => reply,
        Err(refused) => return *refused,
    };
    let client = hyper::upgrade::on(&mut request);
    let work = tunnel::run(client, stream, already, shared.stream_idle);
    keep(shared, peer, &request, work);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_are_known_by_their_headers() {
        let headers = |connection: &'static str, upgrade: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static(connection));
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
            headers
        };
        for (connection, upgrade, wanted) in [
            ("Upgrade", "websocket", (true, true)),
            ("keep-alive, Upgrade", "WebSocket", (true, true)),
            ("upgrade", "SPDY/3.1", (true, false)),
            ("close", "websocket", (false, false)),
        ] {
            let headers = headers(connection, upgrade);
            assert_eq!((is_upgrade(&headers), is_websocket(&headers)), wanted, "{connection}");
        }
    }
}
