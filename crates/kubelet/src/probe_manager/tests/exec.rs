//! Commands, put to a runtime behind a real socket.
#![allow(clippy::disallowed_methods)] // tests may spawn their server

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use cri::{ClientConfig, CriClient, v1};
use kubelet_model::ContainerId;
use serde_json::json;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::world::World;
use crate::ports::{BODY_MAX, Ports};
use crate::probe_manager::ask::{Outcome, ask};
use crate::probe_manager::question::Question;

/// Does what the command's first word says; counts calls.
struct Runtime(Arc<AtomicU32>);

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn exec_sync(
        &self,
        request: Request<v1::ExecSyncRequest>,
    ) -> Result<Response<v1::ExecSyncResponse>, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let request = request.into_inner();
        let answer = |exit_code, stdout: Vec<u8>, stderr: Vec<u8>| {
            Ok(Response::new(v1::ExecSyncResponse { exit_code, stdout, stderr }))
        };
        match request.cmd[0].as_str() {
            "true" => answer(0, Vec::new(), Vec::new()),
            "false" => answer(1, b"out;".to_vec(), b"err".to_vec()),
            "chatty" => answer(1, vec![b'x'; 3 * BODY_MAX], Vec::new()),
            "sleep" => Err(Status::deadline_exceeded(format!("after {} s", request.timeout))),
            other => Err(Status::unknown(format!("no {other} in {}", request.container_id))),
        }
    }
}

#[tokio::test]
async fn commands_are_judged_as_upstream_does() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("runtime.sock");
    let calls = Arc::new(AtomicU32::new(0));
    let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
    let service = RuntimeServiceServer::new(Runtime(Arc::clone(&calls)));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let client = CriClient::new(ClientConfig {
        runtime_endpoint: format!("unix://{}", socket.display()),
        image_endpoint: None,
        request_timeout: Duration::from_secs(10),
    });
    let world = World::new(Duration::ZERO, json!({"containers": []})).await;
    let ports = Ports { runtime: Arc::new(client.unwrap()), ..world.ports.clone() };
    let id = ContainerId::new("c1");
    for (command, tries, expected) in [
        ("true", 1, Outcome::Success),
        ("false", 1, Outcome::Failure("out;err".to_owned())),
        ("chatty", 1, Outcome::Failure("x".repeat(BODY_MAX))),
        ("sleep", 1, Outcome::Failure("command timed out: \"sleep 9\" timed out after 2s".into())),
        (
            "nonsense",
            3,
            Outcome::Error {
                state: "unknown",
                why: "rpc error: code = Unknown desc = no nonsense in c1".to_owned(),
            },
        ),
    ] {
        calls.store(0, Ordering::Relaxed);
        let command = vec![command.to_owned(), "9".to_owned()];
        let question = Ok(Question::Exec { command: command.clone() });
        let outcome = ask(&ports, &question, &id, None, Duration::from_secs(2)).await;
        assert_eq!(outcome, expected, "{command:?}");
        assert_eq!(calls.load(Ordering::Relaxed), tries, "{command:?}");
    }
}
