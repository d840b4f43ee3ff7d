//! Replies that no well-behaved server would send, byte by byte.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use cri::{CallErrorKind, Runtime};
use http_body_util::Full;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::service::Routes;

use crate::fake::{Place, Running};

/// Answers every call with the same bytes.
#[derive(Clone)]
struct Raw {
    body: &'static [u8],
    authorities: Arc<Mutex<Vec<String>>>,
}

impl NamedService for Raw {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<Request<Body>> for Raw {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        self.authorities.lock().unwrap().push(authority);
        let body = Body::new(Full::from(self.body));
        let response = Response::builder().header("content-type", "application/grpc");
        ready(Ok(response.header("grpc-status", "0").body(body).unwrap()))
    }
}

#[tokio::test]
async fn unreadable_replies_are_nonsense() {
    let garbage: &[u8] = &[0, 0, 0, 0, 3, 0xff, 0xff, 0xff];
    for body in [garbage, &[]] {
        let place = Place::new();
        let raw = Raw { body, authorities: Arc::default() };
        let _server = Running::start(&place.socket, Routes::new(raw.clone()));
        let error = place.client().version().await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Nonsense(_)), "{body:?}: {error:?}");
        // Go servers refuse calls for an authority that looks like a path.
        assert_eq!(*raw.authorities.lock().unwrap(), ["localhost"]);
    }
}
