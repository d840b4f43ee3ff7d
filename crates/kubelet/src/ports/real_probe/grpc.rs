//! The health check of a gRPC server, in the clear, over a connection of its
//! own. Upstream: pkg/probe/grpc/grpc.go.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cri::health::HealthCheckRequest;
use cri::health::health_check_response::ServingStatus;
use cri::health::health_client::HealthClient;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubelet_config::go_duration::GoDuration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};

use super::dial::{dial, drive};
use super::target::join;
use crate::ports::probe::PROBE_USER_AGENT;

/// Pause before the second try to connect; upstream's client pauses as long.
const REDIAL_PAUSE: Duration = Duration::from_secs(1);
/// An answer has two bytes; more than this is no answer.
const ANSWER_MAX: usize = 4 * 1024;

pub(super) async fn check(
    host: &str,
    port: u16,
    service: &str,
    timeout: Duration,
) -> Result<(), String> {
    let deadline = Instant::now() + timeout;
    let within = GoDuration::from_nanos(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX));
    let address = join(host, port);
    let stream = connect(host, port, deadline).await.map_err(|why| {
        format!(
            "timeout: failed to connect service {address:?} within {within}: \
             context deadline exceeded{why}"
        )
    })?;
    let late = || format!("timeout: health rpc did not complete within {within}");
    let origin: Uri = format!("http://{address}")
        .parse()
        .map_err(|error| format!("error: failed to connect service at {address:?}: {error}"))?;
    let asked = timeout_at(deadline, ask(stream, origin, service)).await;
    match asked.map_err(|_| late())? {
        Ok(ServingStatus::Serving) => Ok(()),
        Ok(other) => Err(format!("service unhealthy (responded with {:?})", other.as_str_name())),
        Err(status) if status.code() == Code::Unimplemented => Err(format!(
            "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): {}",
            status.message()
        )),
        Err(status) if status.code() == Code::DeadlineExceeded => Err(late()),
        Err(status) => Err(format!(
            "error: health rpc probe failed: rpc error: code = {:?} desc = {}",
            status.code(),
            status.message()
        )),
    }
}

/// Connects, trying again until the deadline; an error is the last cause, if any.
async fn connect(host: &str, port: u16, deadline: Instant) -> Result<TcpStream, String> {
    let mut why = String::new();
    loop {
        match timeout_at(deadline, dial(host, port)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = format!(": {error}"),
            Err(_) => return Err(why),
        }
        let again = Instant::now() + REDIAL_PAUSE;
        if again >= deadline {
            // Nothing can come of waiting longer.
            return Err(why);
        }
        sleep_until(again).await;
    }
}

async fn ask(stream: TcpStream, origin: Uri, service: &str) -> Result<ServingStatus, Status> {
    let builder = Builder::new(TokioExecutor::new());
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut client =
        HealthClient::with_origin(Http2(sender), origin).max_decoding_message_size(ANSWER_MAX);
    let request = HealthCheckRequest { service: service.to_owned() };
    let answer = drive(connection, client.check(request)).await?.into_inner();
    Ok(answer.status())
}

/// One connection as tonic wants it.
struct Http2(SendRequest<Body>);

type Answer = Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>> + Send>>;

impl Service<Request<Body>> for Http2 {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answer {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(PROBE_USER_AGENT));
        Box::pin(self.0.send_request(request))
    }
}
