//! A client: one connection, HTTP/2 or HTTP/1.1.

use std::sync::Arc;

use apiserver::certificates::Issued;
use apiserver::{ApiServer, Settings};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Body = Full<Bytes>;

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

/// A connection to a server.
pub struct Client {
    sender: Sender,
    token: Option<String>,
}

/// Starts a server and connects to it as somebody who may do anything.
pub async fn server(settings: Settings) -> (ApiServer, Client) {
    let server = ApiServer::start(settings).await.unwrap();
    let now = server.api().now();
    let admin = server.authority().client("admin", Some("system:masters"), now).unwrap();
    let client = Client::connect(&server, Some(&admin), true).await;
    (server, client)
}

impl Client {
    /// Connects with a certificate, or with none.
    pub async fn connect(server: &ApiServer, own: Option<&Issued>, http2: bool) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(server.ca_pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            Some(own) => {
                let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![chain], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let stream = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let io = TokioIo::new(stream);
        let sender = if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            Sender::One(sender)
        };
        Self { sender, token: None }
    }

    /// The same connection, with a token from now on.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Sends a request and returns the answer without its body.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("host", "localhost")
            .header("content-type", content_type);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body.to_owned().into())).unwrap();
        match &mut self.sender {
            Sender::One(sender) => sender.send_request(request).await.unwrap(),
            Sender::Two(sender) => sender.send_request(request).await.unwrap(),
        }
    }

    /// Sends JSON and returns status code and JSON.
    pub async fn call(&mut self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.answer(method, path, "application/json", &text).await
    }

    async fn answer(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> (u16, Value) {
        let response = self.send(method, path, content_type, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap())
    }

    /// GETs an object.
    pub async fn get(&mut self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, Value::Null).await
    }

    /// POSTs an object.
    pub async fn post(&mut self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, body).await
    }

    /// PUTs an object.
    pub async fn put(&mut self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, body).await
    }

    /// DELETEs an object.
    pub async fn delete(&mut self, path: &str, options: Value) -> (u16, Value) {
        self.call(Method::DELETE, path, options).await
    }

    /// PATCHes an object; the format is `merge`, `json` or `strategic-merge`.
    pub async fn patch(&mut self, path: &str, format: &str, body: Value) -> (u16, Value) {
        let content_type = format!("application/{format}-patch+json");
        self.answer(Method::PATCH, path, &content_type, &body.to_string()).await
    }

    /// Starts a watch.
    pub async fn watch(&mut self, path: &str) -> Events {
        let response = self.send(Method::GET, path, "", "").await;
        assert_eq!(response.status(), 200);
        Events { body: response.into_body(), rest: Vec::new() }
    }
}

/// The events of a watch.
pub struct Events {
    body: Incoming,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; none at its end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.rest.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    /// The next event as its type and the object's name.
    pub async fn word(&mut self) -> String {
        let Some(event) = self.next().await else { return "end".to_owned() };
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

/// A ConfigMap.
pub fn map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// A pod on a node.
pub fn pod(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "x:1"}]}})
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
