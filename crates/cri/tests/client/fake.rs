//! A runtime that answers as the test says, on a thread of its own, so that
//! killing it drops every connection as a crash would.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cri::containerd::events_server::{Events, EventsServer};
use cri::containerd::{Envelope, SubscribeRequest};
use cri::v1::image_service_server::{ImageService, ImageServiceServer};
use cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use cri::{ClientConfig, CriClient, v1};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// What the fake does when called.
#[derive(Clone)]
pub enum Does {
    /// Never answers.
    Hang,
    /// Fails.
    Fail(Status),
    /// Answers these messages, encoded; a stream then stays open.
    Reply(Vec<Vec<u8>>),
    /// Sends nothing until told, not even headers, as grpc-go's streams do.
    After(Arc<Notify>, Box<Does>),
}

impl Does {
    pub fn reply(message: impl Message) -> Self {
        Self::Reply(vec![message.encode_to_vec()])
    }
    pub fn stream(messages: impl IntoIterator<Item = impl Message>) -> Self {
        Self::Reply(messages.into_iter().map(|message| message.encode_to_vec()).collect())
    }
    pub fn after(self, go: &Arc<Notify>) -> Self {
        Self::After(go.clone(), Box::new(self))
    }
}

type Streamed<T> = Result<Response<BoxStream<'static, Result<T, Status>>>, Status>;

/// RPC and encoded request.
type Asked = (&'static str, Vec<u8>);

/// Behaviour by RPC name; anything else is unimplemented.
#[derive(Clone, Default)]
pub struct Fake {
    does: BTreeMap<&'static str, Does>,
    requests: Arc<Mutex<Vec<Asked>>>,
    /// Told whenever a client gives up on a hanging call.
    pub cancelled: Arc<Notify>,
}

struct OnDrop(Arc<Notify>);
impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Fake {
    pub fn on(mut self, rpc: &'static str, does: Does) -> Self {
        self.does.insert(rpc, does);
        self
    }

    /// What was asked, oldest first.
    pub fn requests<T: Message + Default>(&self, rpc: &str) -> Vec<T> {
        let requests = self.requests.lock().unwrap();
        let matching = requests.iter().filter(|(name, _)| *name == rpc);
        matching.map(|(_, bytes)| T::decode(&bytes[..]).unwrap()).collect()
    }

    /// Waits until the call has arrived this many times.
    pub async fn asked(&self, rpc: &str, times: usize) {
        let count = || {
            let requests = self.requests.lock().unwrap();
            requests.iter().filter(|(name, _)| *name == rpc).count()
        };
        while count() < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn act(&self, rpc: &'static str, request: &impl Message) -> Result<Vec<Vec<u8>>, Status> {
        self.requests.lock().unwrap().push((rpc, request.encode_to_vec()));
        let mut does = self.does.get(rpc).cloned();
        loop {
            match does {
                None => return Err(Status::unimplemented(format!("unknown method {rpc}"))),
                Some(Does::Reply(messages)) => return Ok(messages),
                Some(Does::Fail(status)) => return Err(status),
                Some(Does::After(go, then)) => {
                    go.notified().await;
                    does = Some(*then);
                }
                Some(Does::Hang) => {
                    let _guard = OnDrop(self.cancelled.clone());
                    pending::<()>().await;
                }
            }
        }
    }

    async fn unary<T: Message + Default>(
        &self,
        rpc: &'static str,
        request: Request<impl Message>,
    ) -> Result<Response<T>, Status> {
        let messages = self.act(rpc, request.get_ref()).await?;
        Ok(Response::new(T::decode(&messages[0][..]).unwrap()))
    }

    async fn streaming<T: Message + Default + 'static>(
        &self,
        rpc: &'static str,
        request: Request<impl Message>,
    ) -> Streamed<T> {
        let messages = self.act(rpc, request.get_ref()).await?;
        let messages = stream::iter(messages).map(|bytes| Ok(T::decode(&bytes[..]).unwrap()));
        Ok(Response::new(messages.chain(stream::pending()).boxed()))
    }

    fn routes(&self) -> Routes {
        let mut routes = Routes::new(RuntimeServiceServer::new(self.clone()))
            .add_service(ImageServiceServer::new(self.clone()));
        if self.does.contains_key("Subscribe") {
            routes = routes.add_service(EventsServer::new(self.clone()));
        }
        routes
    }

    /// Serves on the socket until killed.
    pub fn serve(&self, socket: &Path) -> Running {
        Running::start(socket, self.routes())
    }
}

/// One method of a service, answered from the table.
macro_rules! rpc {
    ($method:ident, $rpc:literal, $request:ty, $reply:ty) => {
        fn $method<'life, 'out>(
            &'life self,
            request: Request<$request>,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response<$reply>, Status>> + Send + 'out>>
        where
            'life: 'out,
            Self: 'out,
        {
            Box::pin(self.unary($rpc, request))
        }
    };
}

#[tonic::async_trait]
impl RuntimeService for Fake {
    rpc!(version, "Version", v1::VersionRequest, v1::VersionResponse);
    rpc!(status, "Status", v1::StatusRequest, v1::StatusResponse);
    rpc!(run_pod_sandbox, "RunPodSandbox", v1::RunPodSandboxRequest, v1::RunPodSandboxResponse);
    rpc!(
        pod_sandbox_status,
        "PodSandboxStatus",
        v1::PodSandboxStatusRequest,
        v1::PodSandboxStatusResponse
    );
    rpc!(list_pod_sandbox, "ListPodSandbox", v1::ListPodSandboxRequest, v1::ListPodSandboxResponse);
    rpc!(
        create_container,
        "CreateContainer",
        v1::CreateContainerRequest,
        v1::CreateContainerResponse
    );
    rpc!(stop_container, "StopContainer", v1::StopContainerRequest, v1::StopContainerResponse);
    rpc!(
        container_status,
        "ContainerStatus",
        v1::ContainerStatusRequest,
        v1::ContainerStatusResponse
    );

    async fn get_container_events(
        &self,
        request: Request<v1::GetEventsRequest>,
    ) -> Streamed<v1::ContainerEventResponse> {
        self.streaming("GetContainerEvents", request).await
    }
}

#[tonic::async_trait]
impl ImageService for Fake {
    rpc!(image_status, "ImageStatus", v1::ImageStatusRequest, v1::ImageStatusResponse);
    rpc!(pull_image, "PullImage", v1::PullImageRequest, v1::PullImageResponse);
}

#[tonic::async_trait]
impl Events for Fake {
    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Streamed<Envelope> {
        if request.metadata().get("containerd-namespace").is_none_or(|name| name != "k8s.io") {
            return Err(Status::failed_precondition("namespace is required"));
        }
        self.streaming("Subscribe", request).await
    }
}

/// A server under way. Dropping it is a crash; the socket file stays behind.
pub struct Running {
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
}

impl Running {
    pub fn start(socket: &Path, routes: Routes) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (kill, killed) = oneshot::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
                let incoming = listener.inspect(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                });
                tokio::select! {
                    served = Server::builder().serve_with_incoming(routes.prepare(), incoming) => served.unwrap(),
                    _ = killed => {}
                }
            });
        });
        Self { kill: Some(kill), thread: Some(thread), connections }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.kill.take());
        let _ = self.thread.take().unwrap().join();
    }
}

/// A socket path in a directory of its own.
pub struct Place {
    _dir: tempfile::TempDir,
    pub socket: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { socket: dir.path().join("r.sock"), _dir: dir }
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    pub fn client(&self) -> CriClient {
        self.client_within(Duration::from_secs(20))
    }

    pub fn client_within(&self, request_timeout: Duration) -> CriClient {
        let runtime_endpoint = self.endpoint();
        let config = ClientConfig { runtime_endpoint, image_endpoint: None, request_timeout };
        CriClient::new(config).unwrap()
    }
}

pub fn version() -> v1::VersionResponse {
    v1::VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "fake".to_owned(),
        runtime_version: "1.2.3".to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
}
