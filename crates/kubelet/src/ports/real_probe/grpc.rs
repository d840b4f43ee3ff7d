//! The health check of a gRPC server, in the clear, over a connection of its
//! own. Upstream: pkg/probe/grpc/grpc.go.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cri::health::health_check_response::ServingStatus;
use cri::health::{HealthCheckRequest, HealthCheckResponse};
use h2::client::ResponseFuture;
use hyper::header::{CONTENT_TYPE, TE, USER_AGENT};
use hyper::{Request, StatusCode};
use kubelet_config::go_duration::GoDuration;
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, BufWriter, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Code, Status};

use super::dial::{dial, drive};
use super::target::join;
use crate::ports::probe::PROBE_USER_AGENT;

/// Pause before the second try to connect; upstream's client pauses as long.
const REDIAL_PAUSE: Duration = Duration::from_secs(1);
/// What is called.
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// Compression and length, before each message.
const FRAME_HEAD: usize = 5;
/// All that is sent is shorter.
const GATHERED: usize = 512;
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
    let unconnected = |why: String| {
        format!(
            "timeout: failed to connect service {address:?} within {within}: \
             context deadline exceeded{why}"
        )
    };
    let stream = connect(host, port, deadline).await.map_err(unconnected)?;
    // Who accepts and does not so much as greet is no server yet, as upstream sees it.
    let heard = AtomicBool::new(false);
    let late = || match heard.load(Ordering::Relaxed) {
        true => format!("timeout: health rpc did not complete within {within}"),
        false => unconnected(String::new()),
    };
    let origin = format!("http://{address}");
    let asked = timeout_at(deadline, ask(stream, &heard, &origin, service)).await;
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

/// Asks over HTTP/2 itself: a client of tonic's keeps a task and two queues for
/// a connection that lives for one question.
async fn ask(
    mut stream: TcpStream,
    heard: &AtomicBool,
    origin: &str,
    service: &str,
) -> Result<ServingStatus, Status> {
    let (inner, writer) = stream.split();
    // Greeting, settings and question go out together: each write wakes the server.
    let writer = BufWriter::with_capacity(GATHERED, writer);
    let stream = tokio::io::join(Listening { inner, heard }, writer);
    let (mut client, connection) = h2::client::handshake(stream).await.map_err(broken)?;
    let request = Request::post(format!("{origin}{CHECK}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, PROBE_USER_AGENT)
        .body(())
        .map_err(|error| Status::internal(error.to_string()))?;
    let (answer, mut question) = client.send_request(request, false).map_err(broken)?;
    question.send_data(framed(service), true).map_err(broken)?;
    drive(connection, read(answer)).await
}

/// Notes whether anything came.
struct Listening<'a, R> {
    inner: R,
    heard: &'a AtomicBool,
}

impl<R: AsyncRead + Unpin> AsyncRead for Listening<'_, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.heard.store(true, Ordering::Relaxed);
        }
        polled
    }
}

/// The question as gRPC frames it: not compressed, its length, its bytes.
fn framed(service: &str) -> Bytes {
    let request = HealthCheckRequest { service: service.to_owned() };
    let length = u32::try_from(request.encoded_len()).unwrap_or(u32::MAX);
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + request.encoded_len());
    frame.put_u8(0);
    frame.put_u32(length);
    request.encode_raw(&mut frame);
    frame.freeze()
}

async fn read(answer: ResponseFuture) -> Result<ServingStatus, Status> {
    let (head, mut body) = answer.await.map_err(broken)?.into_parts();
    if head.status != StatusCode::OK {
        let text = format!("unexpected HTTP status code received from server: {}", head.status);
        return Err(Status::new(of_http(head.status), text));
    }
    if let Some(status) = Status::from_header_map(&head.headers) {
        return Err(status);
    }
    let mut bytes = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(broken)?;
        if bytes.len() + data.len() > ANSWER_MAX {
            return Err(Status::resource_exhausted("the answer is too long"));
        }
        bytes.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).map_err(broken)?;
    }
    let trailers = body.trailers().await.map_err(broken)?.unwrap_or_default();
    match Status::from_header_map(&trailers) {
        Some(status) if status.code() != Code::Ok => return Err(status),
        Some(_) => {}
        None => return Err(Status::internal("server closed the stream without sending trailers")),
    }
    if bytes.len() < FRAME_HEAD || bytes[0] != 0 {
        return Err(Status::internal("the answer is not one plain message"));
    }
    let answer = HealthCheckResponse::decode(&bytes[FRAME_HEAD..]);
    Ok(answer.map_err(|error| Status::internal(error.to_string()))?.status())
}

/// What an answer that is not gRPC means.
fn of_http(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

fn broken(error: h2::Error) -> Status {
    Status::unavailable(error.to_string())
}
