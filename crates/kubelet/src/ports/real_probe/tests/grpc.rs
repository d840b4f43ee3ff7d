//! The gRPC health protocol.

use std::sync::{Arc, Mutex};

use cri::health::health_check_response::ServingStatus;
use cri::health::health_server::{Health, HealthServer};
use cri::health::{HealthCheckRequest, HealthCheckResponse};
use cri::v1::image_service_server::{ImageService, ImageServiceServer};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;

/// Answers by the name of the service asked for; notes the user agent.
#[derive(Clone, Default)]
struct Checker(Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl Health for Checker {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let agent = request.metadata().get("user-agent").and_then(|agent| agent.to_str().ok());
        self.0.lock().unwrap().push(agent.unwrap_or_default().to_owned());
        let status = match request.into_inner().service.as_str() {
            "" => ServingStatus::Serving,
            "sick" => ServingStatus::NotServing,
            "slow" => std::future::pending().await,
            other => return Err(Status::not_found(format!("unknown service {other}"))),
        };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }
}

struct NoImages;
impl ImageService for NoImages {}

#[tokio::test]
async fn needs_a_server_that_serves() {
    let checker = Checker::default();
    let (listener, port) = listen().await;
    let server = Server::builder().add_service(HealthServer::new(checker.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let net = RealProbeNet::default();
    for (service, expected) in [
        ("", Ok(())),
        ("sick", Err("service unhealthy (responded with \"NOT_SERVING\")")),
        (
            "none",
            Err(
                "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service none",
            ),
        ),
        ("slow", Err("timeout: health rpc did not complete within 1s")),
    ] {
        let got = net.grpc("127.0.0.1", port, service, SECOND).await;
        assert_eq!(got, expected.map_err(str::to_owned), "{service}");
    }
    assert_eq!(checker.0.lock().unwrap()[0], "kube-probe/1.36");
}

#[tokio::test]
async fn tells_servers_that_cannot_say_how_they_are() {
    let net = RealProbeNet::default();
    let (listener, port) = listen().await;
    let server = Server::builder().add_service(ImageServiceServer::new(NoImages));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let why = net.grpc("127.0.0.1", port, "", SECOND).await.unwrap_err();
    let expected = "error: this server does not implement the grpc health protocol";
    assert!(why.starts_with(expected), "{why}");

    let port = deaf_port().await;
    let why = net.grpc("127.0.0.1", port, "", SECOND).await.unwrap_err();
    let expected = format!(
        "timeout: failed to connect service \"127.0.0.1:{port}\" within 1s: context deadline \
         exceeded: dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    assert_eq!(why, expected);

    let (port, _server) = serve(vec![answer("200 OK", "", "")]).await;
    assert!(net.grpc("127.0.0.1", port, "", SECOND).await.is_err(), "it speaks HTTP/1 only");
}

#[tokio::test]
async fn a_server_that_does_not_greet_is_not_connected() {
    let (_listener, port) = listen().await;
    let why = RealProbeNet::default().grpc("127.0.0.1", port, "", SECOND).await.unwrap_err();
    let expected = format!(
        "timeout: failed to connect service \"127.0.0.1:{port}\" within 1s: context deadline exceeded"
    );
    assert_eq!(why, expected);
}

#[tokio::test]
async fn a_server_that_comes_up_in_time_is_waited_for() {
    let (listener, port) = listen().await;
    drop(listener);
    let _server = tokio::spawn(async move {
        tokio::time::sleep(SHORT).await;
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let server = Server::builder().add_service(HealthServer::new(Checker::default()));
        server.serve_with_incoming(TcpListenerStream::new(listener)).await
    });
    assert_eq!(RealProbeNet::default().grpc("127.0.0.1", port, "", 5 * SECOND).await, Ok(()));
}
