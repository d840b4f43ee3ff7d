//! An API server for one test: real sockets, real TLS, nothing special.
//!
//! Owns a thread with the server, its certificates and its objects, which outlive
//! a stop; writes kubeconfig files into the directory it is given. Faults are put
//! around its handler by whoever starts it.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use api_client::Call;
use apiserver::auth::TokenIssuer;
use apiserver::certificates::Authority;
use apiserver::direct::Direct;
use apiserver::serve::{Credentials, Handler, Wrap, kubeconfig};
use apiserver::store::Key;
use apiserver::{Api, ApiServer, Settings, StaticToken, Store, User};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::knocks::Knocks;

/// Makes a handler of another: the place for faults.
pub type Faults = Arc<dyn Fn(Handler) -> Handler + Send + Sync>;

/// How the server is to be.
#[derive(Clone)]
pub struct ApiOptions {
    /// Tokens known by heart.
    pub tokens: Vec<StaticToken>,
    /// Whether certificates of nodes are approved that policy lets them have.
    pub approves_nodes: bool,
    /// How long certificates last that it signs.
    pub certificate_lifetime: SignedDuration,
    /// Whether pods are given a token of their service account.
    pub mounts_tokens: bool,
    /// How long such tokens last at most.
    pub token_lifetime_max: Option<SignedDuration>,
    /// Changes that can be asked for again.
    pub remembered_changes: usize,
    /// Put around every request.
    pub faults: Option<Faults>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        let Settings { remembered_changes, certificate_lifetime, .. } = Settings::default();
        Self {
            tokens: Vec::new(),
            approves_nodes: false,
            certificate_lifetime,
            mounts_tokens: false,
            token_lifetime_max: None,
            remembered_changes,
            faults: None,
        }
    }
}

/// An API server that ends when dropped.
pub struct TestApi {
    dir: PathBuf,
    options: ApiOptions,
    authority: Arc<Authority>,
    token_key: Vec<u8>,
    store: Arc<Store>,
    /// Seconds by which its clock is ahead.
    ahead_secs: Arc<AtomicI64>,
    address: SocketAddr,
    running: Option<Running>,
}

struct Running {
    api: Arc<Api>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl TestApi {
    /// Starts a server on a free port; kubeconfig files go into `dir`.
    pub fn start(dir: &Path, options: ApiOptions) -> Result<Self> {
        let now = Timestamp::now();
        let authority = Authority::generate("testkit-ca", now).context("cannot make a CA")?;
        let mut server = Self {
            dir: dir.to_owned(),
            store: Arc::new(Store::new(options.remembered_changes)),
            options,
            authority: Arc::new(authority),
            token_key: TokenIssuer::generate_key().context("cannot make a key for tokens")?,
            ahead_secs: Arc::default(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            running: None,
        };
        server.resume()?;
        Ok(server)
    }

    /// Stops serving; objects and certificates stay.
    pub fn pause(&mut self) -> Result<()> {
        let Some(Running { stop, thread, .. }) = self.running.take() else { return Ok(()) };
        // A thread that has ended has nothing to stop.
        let _ = stop.send(());
        thread.join().map_err(|_| anyhow!("the API server's thread panicked"))
    }

    /// Counts connections while it is paused.
    pub fn count_knocks(&self) -> Result<Knocks> {
        Knocks::count_at(self.address)
    }

    /// Serves again, at the same address.
    pub fn resume(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let wrap = self.options.faults.clone();
        let ahead = Arc::clone(&self.ahead_secs);
        let settings = Settings {
            listen: self.address,
            authority: Some(Arc::clone(&self.authority)),
            store: Some(Arc::clone(&self.store)),
            token_key: Some(self.token_key.clone()),
            tokens: self.options.tokens.clone(),
            approves_nodes: self.options.approves_nodes,
            certificate_lifetime: self.options.certificate_lifetime,
            mounts_tokens: self.options.mounts_tokens,
            token_lifetime_max: self.options.token_lifetime_max,
            clock: Arc::new(move || shifted(&ahead)),
            wrap: wrap.map(|faults| -> Wrap { Box::new(move |handler| faults(handler)) }),
            ..Settings::default()
        };
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || serve(settings, &tell, stopped));
        let (address, api) = told.recv().context("the API server's thread ended")??;
        self.address = address;
        self.running = Some(Running { api, stop, thread });
        Ok(())
    }

    /// Sets its clock ahead of this machine's, or behind. What it signs from now on is
    /// dated by it; its own certificate stays.
    pub fn set_clock_ahead(&self, by: SignedDuration) {
        self.ahead_secs.store(by.as_secs(), Ordering::SeqCst);
    }

    /// Where it listens, as clients write it.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Certificate of its authority, in PEM.
    pub fn ca_pem(&self) -> &str {
        self.authority.pem()
    }

    /// Signs certificates of clients.
    pub fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// Its objects.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Stores an object as its creation through the API would, unless it is there.
    pub fn add(&self, namespace: &str, object: Value) -> Result<()> {
        let running = self.running.as_ref().context("the API server is paused")?;
        running.api.add(namespace, object).context("the object was refused")
    }

    /// An object by its resource, such as `leases.coordination.k8s.io`.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = Key { resource: resource.into(), namespace: namespace.into(), name: name.into() };
        self.store.get(&key).map(|stored| stored.value())
    }

    /// Asks as somebody who may do anything, without a connection.
    pub fn ask(&self, call: Call) -> Result<Value> {
        let running = self.running.as_ref().context("the API server is paused")?;
        let user = User::new("kubernetes-admin", ["system:masters"]);
        let direct = Direct::new(Arc::clone(&running.api), user);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let what = format!("{} {}", call.method, call.path);
        runtime.block_on(async { api_client::Api::call(&direct, call).await }).context(what)
    }

    /// Writes a kubeconfig of a node, which may do what nodes may.
    pub fn node_kubeconfig(&self, node: &str) -> Result<PathBuf> {
        self.kubeconfig(&format!("system:node:{node}"), Some("system:nodes"))
    }

    /// Writes a kubeconfig of somebody who may do anything.
    pub fn admin_kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig("kubernetes-admin", Some("system:masters"))
    }

    /// Writes a node's kubeconfig with a certificate that expired long ago.
    pub fn expired_kubeconfig(&self, node: &str) -> Result<PathBuf> {
        let then = Timestamp::from_second(1_000_000_000)?;
        let user = format!("system:node:{node}");
        let issued = self.authority.client(&user, Some("system:nodes"), then);
        self.write(&user, &Credentials::Certificate(issued.context("cannot sign")?))
    }

    /// Writes a kubeconfig with a new client certificate of a user.
    pub fn kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let now = shifted(&self.ahead_secs);
        let issued = self.authority.client(user, group, now).context("cannot sign")?;
        self.write(user, &Credentials::Certificate(issued))
    }

    /// Writes a kubeconfig with a token, under a name.
    pub fn token_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.write(name, &Credentials::Token(token.to_owned()))
    }

    fn write(&self, name: &str, credentials: &Credentials) -> Result<PathBuf> {
        let path = self.dir.join(format!("{}.kubeconfig", name.replace([':', '/'], "-")));
        let text = kubeconfig(&self.url(), self.ca_pem(), credentials);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for TestApi {
    fn drop(&mut self) {
        if let Err(error) = self.pause() {
            eprintln!("{error}");
        }
    }
}

/// The time, by a clock that is so many seconds ahead.
fn shifted(ahead_secs: &AtomicI64) -> Timestamp {
    let ahead = SignedDuration::from_secs(ahead_secs.load(Ordering::SeqCst));
    let now = Timestamp::now();
    now.saturating_add(ahead).unwrap_or(now)
}

type Told = mpsc::Sender<Result<(SocketAddr, Arc<Api>)>>;

fn serve(settings: Settings, tell: &Told, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime.context("no runtime") {
        Ok(runtime) => runtime,
        // Whoever started this waits for the answer.
        Err(error) => return drop(tell.send(Err(error))),
    };
    runtime.block_on(async {
        let server = match ApiServer::start(settings).await.context("no API server") {
            Ok(server) => server,
            Err(error) => return drop(tell.send(Err(error))),
        };
        let _ = tell.send(Ok((server.address, Arc::clone(server.api()))));
        // An error means that the owner is gone, which is as good a reason to stop.
        let _ = stopped.await;
        server.stop().await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_address_outlive_a_pause() {
        let dir = tempfile::tempdir().unwrap();
        let mut api = TestApi::start(dir.path(), ApiOptions::default()).unwrap();
        let config = fs::read_to_string(api.admin_kubeconfig().unwrap()).unwrap();
        assert!(config.contains(&api.url()));
        let url = api.url();
        let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a"}, "data": {"k": "v"}});
        api.add("default", map.clone()).unwrap();
        api.pause().unwrap();
        assert!(api.add("default", map).is_err());
        api.resume().unwrap();
        assert_eq!(api.url(), url);
        let kept = api.object("configmaps", "default", "a").unwrap();
        assert_eq!(kept["data"]["k"], "v");
    }
}
