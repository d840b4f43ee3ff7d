//! The connection to the agent's socket: one request per connection.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::ArgMatches;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kubelet::ports::Tasks;
use kubelet::server::local::SOCKET;
use kubelet::server::local::wire::Refusal;
use kubelet_model::typed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// Largest answer taken: ten thousand pods with their statuses.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The agent to ask.
#[derive(Debug, Clone)]
pub struct Endpoint {
    socket: PathBuf,
}

impl Endpoint {
    /// From --socket, $KLET_SOCKET or --root-dir, in this order.
    pub fn from_matches(matches: &ArgMatches) -> Self {
        let given = matches.get_one::<String>("socket").map(PathBuf::from);
        let environment =
            || std::env::var_os("KLET_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from);
        let root = matches.get_one::<String>("root-dir").map_or("/var/lib/kubelet", String::as_str);
        let named_root =
            matches.value_source("root-dir") == Some(clap::parser::ValueSource::CommandLine);
        let environment = if named_root { None } else { environment() };
        Self { socket: given.or(environment).unwrap_or_else(|| Path::new(root).join(SOCKET)) }
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        decode(self.send(Method::GET, path, String::new()).await?).await
    }

    /// Has something done.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        let body = serde_json::to_string(body).context("cannot write the request")?;
        decode(self.send(Method::POST, path, body).await?).await
    }

    /// Asks for something that comes bit by bit.
    pub async fn stream(&self, path: &str) -> anyhow::Result<Incoming> {
        Ok(accepted(self.send(Method::GET, path, String::new()).await?).await?.into_body())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Response<Incoming>> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| self.absent(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        Tasks::default().spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "klet")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .with_context(|| format!("{path:?} cannot be asked for"))?;
        let lost = "klet ended the connection before it answered; it may have been stopped";
        sender.send_request(request).await.context(lost)
    }

    /// Nobody answers there: say why and what to do.
    fn absent(&self, error: &std::io::Error) -> anyhow::Error {
        let socket = self.socket.display();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
                "no klet runs here: nobody serves {socket} ({error}).\n\
                 Start one:  klet kubelet --pod-manifest-path=/etc/klet/pods\n\
                 If it runs with another --root-dir, name its socket:  --socket=DIR/{SOCKET}, or $KLET_SOCKET"
            ),
            ErrorKind::PermissionDenied => {
                anyhow!("only root may talk to klet at {socket}; try again with sudo")
            }
            _ => anyhow!("cannot connect to klet at {socket}: {error}"),
        }
    }
}

/// The response, or what it says went wrong.
async fn accepted(response: Response<Incoming>) -> anyhow::Result<Response<Incoming>> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = bytes(response).await?;
    match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => bail!("{}", refusal.error),
        Err(_) => bail!("klet answered {status}: {}", String::from_utf8_lossy(&body).trim()),
    }
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> anyhow::Result<T> {
    let body = bytes(accepted(response).await?).await?;
    typed::from_json(&body).context("klet's answer cannot be read; is it another version?")
}

async fn bytes(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| anyhow!("klet's answer broke off: {error}"))?.to_bytes())
}
