//! The client against servers that no well-behaved driver would be, on real
//! unix sockets. Well-behaved and failing drivers are testkit's.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the server is a process of its own in spirit: it owns its tasks"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::Full;
use plugin_apis::csi::{NodeExpandVolumeRequest, NodeStageVolumeRequest};
use plugin_apis::{CallErrorKind, CsiClient};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Server;

/// Answers every call with the same bytes, and keeps what it was sent.
#[derive(Clone)]
struct Raw {
    body: Vec<u8>,
    seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl NamedService for Raw {
    const NAME: &'static str = "csi.v1.Node";
}

impl Service<Request<Body>> for Raw {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.seen.lock().unwrap().push((request.uri().to_string(), request.headers().clone()));
        let body = Body::new(Full::from(self.body.clone()));
        let response = Response::builder().header("content-type", "application/grpc");
        ready(Ok(response.header("grpc-status", "0").body(body).unwrap()))
    }
}

impl Raw {
    fn new(body: &[u8]) -> Self {
        Self { body: body.to_vec(), seen: Arc::default() }
    }

    /// A reply that holds one message.
    fn message(message: &[u8]) -> Self {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        Self::new(&[&[0], &length[..], message].concat())
    }

    /// Serves in the background; the directory holds the socket.
    fn serve(&self) -> (tempfile::TempDir, CsiClient) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("csi.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let routes = Routes::new(self.clone());
        tokio::spawn(Server::builder().serve_with_incoming(routes.prepare(), incoming));
        let client = CsiClient::new("raw.example", socket.to_str().unwrap()).unwrap();
        (dir, client)
    }
}

#[tokio::test]
async fn unreadable_replies_are_nonsense_and_not_final() {
    let huge = vec![0; (4 << 20) + 1];
    for raw in [Raw::message(&[0xff; 3]), Raw::new(&[]), Raw::message(&huge)] {
        let (_dir, client) = raw.serve();
        let error = client.node_info().await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Nonsense(_)), "{error:?}");
        assert!(!error.is_final());
        assert_eq!((error.call, &error.driver[..]), ("NodeGetInfo", "raw.example"));
    }
}

#[tokio::test]
async fn the_driver_learns_authority_path_and_limit() {
    let raw = Raw::message(&[]);
    let (_dir, client) = raw.serve();
    let request = NodeStageVolumeRequest { volume_id: "v".to_owned(), ..Default::default() };
    client.stage(request).await.unwrap();
    let seen = raw.seen.lock().unwrap();
    let (uri, headers) = &seen[0];
    // Go servers refuse calls for an authority that looks like a path.
    assert_eq!(uri, "http://localhost/csi.v1.Node/NodeStageVolume");
    // Two minutes, in milliseconds.
    assert_eq!(headers["grpc-timeout"], "120000m");
}

#[tokio::test]
async fn a_node_without_id_is_nonsense() {
    let (_dir, client) = Raw::message(&[]).serve();
    let error = client.node_info().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Nonsense("node_id is not set".to_owned()));
}

#[tokio::test]
async fn unknown_capabilities_are_left_out() {
    // STAGE_UNSTAGE_VOLUME, UNKNOWN, 99, and one that is no RPC.
    let reply = b"\x0a\x04\x0a\x02\x08\x01\x0a\x02\x0a\x00\x0a\x04\x0a\x02\x08\x63\x0a\x00";
    let (_dir, client) = Raw::message(reply).serve();
    let known = client.node_capabilities().await.unwrap();
    let expected = plugin_apis::csi::NodeCapability::StageUnstageVolume;
    assert_eq!(known.into_iter().collect::<Vec<_>>(), [expected]);
}

#[tokio::test]
async fn a_request_too_large_is_not_sent() {
    let raw = Raw::message(&[]);
    let (_dir, client) = raw.serve();
    let secrets = BTreeMap::from([("k".to_owned(), "x".repeat(4 << 20))]);
    let request = NodeExpandVolumeRequest { secrets, ..Default::default() };
    let error = client.expand(request).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::TooLarge(_)), "{error:?}");
    assert_eq!((error.code(), error.is_final()), (Code::ResourceExhausted, false));
    assert!(raw.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_server_that_never_speaks_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let client = CsiClient::new("mute.example", socket.to_str().unwrap()).unwrap();
    let limit = Duration::from_millis(100);
    let error = client.within(limit).probe().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TimedOut(limit));
    assert_eq!((error.code(), error.is_final()), (Code::DeadlineExceeded, false));
}

#[tokio::test]
async fn a_missing_socket_is_named() {
    let client = CsiClient::new("gone.example", "/no/such/csi.sock").unwrap();
    let error = client.probe().await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unreachable(_)), "{error:?}");
    let text = error.to_string();
    for word in ["Probe", "gone.example", "/no/such/csi.sock", "No such file"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}
