//! The node's lease: the sign of life that is cheap.
//!
//! Owns the lease as last written, which is what the next renewal starts from. Made only
//! once the Node is there, which owns it; never deleted. Upstream: component-helpers
//! apimachinery/lease/controller.go, pkg/kubelet/util/nodelease.go.

use std::sync::Arc;
use std::time::Duration;

use api_client::{ApiError, Call, path};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::context::{Context, NodeError, wait};
use super::fields;
use super::health::RENEW;

const NAMESPACE: &str = "kube-node-lease";
const API: &str = "apis/coordination.k8s.io/v1";
/// Attempts to renew, one after the other.
const TRIES: u32 = 5;
/// Pauses between attempts to find or make the lease.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(7);

/// Renews the lease.
pub(super) struct Lease {
    context: Arc<Context>,
    latest: Option<Value>,
}

impl Lease {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, latest: None }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let mut node = self.context.latest.subscribe();
        loop {
            node.borrow_and_update();
            self.sync().await;
            let pause = self.context.jittered(self.context.settings.renew_every());
            if self.latest.is_some() {
                sleep(pause).await;
                continue;
            }
            // There is no Node to own the lease; it may come sooner.
            tokio::select! { biased;
                () = sleep(pause) => {}
                Ok(()) = node.changed() => {}
            }
        }
    }

    async fn sync(&mut self) {
        // Nobody else writes it: what was written last is what the server has.
        if let Some(latest) = self.latest.clone()
            && self.renew(latest).await
        {
            return;
        }
        match self.ensure().await {
            // Just made is as good as renewed.
            Some((lease, true)) => self.done(lease),
            Some((lease, false)) => {
                self.latest = Some(lease.clone());
                self.renew(lease).await;
            }
            None => self.latest = None,
        }
    }

    fn done(&mut self, lease: Value) {
        self.latest = Some(lease);
        self.context.works(RENEW, |health, now| health.lease_renewed = Some(now));
    }

    fn fail(&self, error: &dyn std::error::Error) {
        tracing::warn!(error = %error, "cannot renew the node's lease");
        self.context.fails(RENEW, &error.to_string());
    }

    /// Whether it was renewed, in a few attempts.
    async fn renew(&mut self, mut base: Value) -> bool {
        for attempt in 0..TRIES {
            let pause = match self.prepared(base.clone()).await {
                Err(error) => {
                    self.fail(&error);
                    error.wait()
                }
                Ok(lease) => match self.call(Call::put(&self.path(), lease)).await {
                    Ok(lease) => {
                        self.done(lease);
                        return true;
                    }
                    Err(error) => {
                        self.fail(&error);
                        if error.is_not_found() {
                            return false;
                        }
                        if error.is_conflict() {
                            match self.ensure().await {
                                Some((lease, _)) => base = lease,
                                None => return false,
                            }
                            continue;
                        }
                        wait(&error)
                    }
                },
            };
            if attempt > 0 {
                self.context.reports.reconnect().await;
            }
            sleep(pause).await;
        }
        false
    }

    /// The lease, and whether it was made just now; `None` while there is no Node.
    async fn ensure(&self) -> Option<(Value, bool)> {
        let mut pause = PAUSE_FIRST;
        loop {
            let error = match self.call(Call::get(&self.path())).await {
                Ok(lease) => return Some((lease, false)),
                Err(error) if error.is_not_found() => {
                    let lease = match self.prepared(self.first()).await {
                        Ok(lease) => lease,
                        Err(error) => {
                            self.fail(&error);
                            return None;
                        }
                    };
                    let path = path(API, NAMESPACE, &["leases"]);
                    match self.call(Call::post(&path, lease)).await {
                        Ok(lease) => return Some((lease, true)),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.fail(&error);
            sleep(pause.max(wait(&error))).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn first(&self) -> Value {
        let name = &self.context.settings.name;
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"holderIdentity": name}})
    }

    /// The lease as it is to be written now.
    async fn prepared(&self, mut lease: Value) -> Result<Value, NodeError> {
        let settings = &self.context.settings;
        let spec = fields::map(fields::as_map(&mut lease), "spec");
        spec.insert("leaseDurationSeconds".to_owned(), settings.lease_seconds.into());
        fields::put_text(spec, "renewTime", &fields::micros(self.context.now()));
        if fields::list(&lease, "/metadata/ownerReferences").is_empty() {
            let node = self.context.get_node(false).await.map_err(NodeError::Get)?;
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": settings.name,
                "uid": node.uid()});
            let metadata = fields::map(fields::as_map(&mut lease), "metadata");
            fields::put_list(metadata, "ownerReferences", vec![owner]);
        }
        Ok(lease)
    }

    fn path(&self) -> String {
        path(API, NAMESPACE, &["leases", &self.context.settings.name])
    }

    async fn call(&self, call: Call) -> Result<Value, ApiError> {
        self.context.api.call(call.within(self.context.settings.heartbeat_limit())).await
    }
}
