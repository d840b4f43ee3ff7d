//! Times every call to a CSI driver. Upstream: pkg/volume/csi/csi_metrics.go.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use plugin_apis::csi::{
    NodeCapability, NodeExpandVolumeRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodeStageVolumeRequest,
};
use plugin_apis::{CallError, EndpointError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::plugins::{CsiNode, Plugins, Registrar};

/// Upstream's buckets for whatever is done to volumes.
pub(crate) const STORAGE_BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// A histogram with them.
pub(crate) fn storage_seconds() -> Histogram {
    Histogram::new(STORAGE_BUCKETS)
}

/// One kind of call to one driver, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    driver_name: Arc<str>,
    method_name: &'static str,
    grpc_status_code: String,
    /// In-tree volumes are never translated here.
    migrated: &'static str,
}

/// How long calls to drivers take. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CsiMetrics(Family<CallLabels, Histogram, fn() -> Histogram>);

impl Default for CsiMetrics {
    fn default() -> Self {
        Self(Family::new_with_constructor(storage_seconds))
    }
}

impl CsiMetrics {
    /// Makes them part of `/metrics`.
    pub fn register(&self, to: &mut Registry) {
        to.register_with_unit(
            "csi_operations",
            "Container Storage Interface operation duration with gRPC error code status total",
            Unit::Seconds,
            self.0.clone(),
        );
    }
}

/// Plugins whose calls show up in the metrics.
pub struct MeteredPlugins {
    inner: Arc<dyn Plugins>,
    metrics: CsiMetrics,
}

impl MeteredPlugins {
    /// Wraps those that are reached else.
    pub fn new(inner: Arc<dyn Plugins>, metrics: CsiMetrics) -> Self {
        Self { inner, metrics }
    }
}

impl Plugins for MeteredPlugins {
    fn registrar(&self, socket: &Path) -> Result<Arc<dyn Registrar>, EndpointError> {
        self.inner.registrar(socket)
    }

    fn csi(&self, driver: &str, endpoint: &str) -> Result<Arc<dyn CsiNode>, EndpointError> {
        let inner = self.inner.csi(driver, endpoint)?;
        Ok(Arc::new(MeteredCsi { inner, driver: driver.into(), metrics: self.metrics.clone() }))
    }
}

struct MeteredCsi {
    inner: Arc<dyn CsiNode>,
    driver: Arc<str>,
    metrics: CsiMetrics,
}

impl MeteredCsi {
    /// A call that is given up before it ends counts as nothing.
    async fn time<T>(
        &self,
        method_name: &'static str,
        call: impl Future<Output = Result<T, CallError>> + Send,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        let answer = call.await;
        let labels = CallLabels {
            driver_name: Arc::clone(&self.driver),
            method_name,
            grpc_status_code: answer.as_ref().err().map_or_else(|| "OK".to_owned(), code_name),
            migrated: "false",
        };
        self.metrics.0.get_or_create(&labels).observe(began.elapsed().as_secs_f64());
        answer
    }
}

/// The code of a failed call, as Go's gRPC spells it.
pub(crate) fn code_name(error: &CallError) -> String {
    match error.code() {
        tonic::Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

#[async_trait]
impl CsiNode for MeteredCsi {
    async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
        self.time("/csi.v1.Node/NodeGetInfo", self.inner.info()).await
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
        self.time("/csi.v1.Node/NodeGetCapabilities", self.inner.capabilities()).await
    }

    async fn stage(&self, request: NodeStageVolumeRequest) -> Result<(), CallError> {
        self.time("/csi.v1.Node/NodeStageVolume", self.inner.stage(request)).await
    }

    async fn unstage(&self, volume: &str, staging_path: &str) -> Result<(), CallError> {
        let call = self.inner.unstage(volume, staging_path);
        self.time("/csi.v1.Node/NodeUnstageVolume", call).await
    }

    async fn publish(&self, request: NodePublishVolumeRequest) -> Result<(), CallError> {
        self.time("/csi.v1.Node/NodePublishVolume", self.inner.publish(request)).await
    }

    async fn unpublish(&self, volume: &str, target_path: &str) -> Result<(), CallError> {
        let call = self.inner.unpublish(volume, target_path);
        self.time("/csi.v1.Node/NodeUnpublishVolume", call).await
    }

    async fn expand(&self, request: NodeExpandVolumeRequest) -> Result<(), CallError> {
        self.time("/csi.v1.Node/NodeExpandVolume", self.inner.expand(request)).await
    }

    async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, CallError> {
        self.time("/csi.v1.Node/NodeGetVolumeStats", self.inner.stats(request)).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plugin_apis::CallErrorKind;
    use prometheus_client::encoding::text::encode;
    use tonic::Code;

    use super::*;

    fn failed(kind: CallErrorKind) -> CallError {
        let (driver, volume) = ("d.example".to_owned(), String::new());
        CallError { driver, call: "NodeStageVolume", volume, kind }
    }

    /// Takes its time for what it refuses.
    struct Refusing;

    #[async_trait]
    impl CsiNode for Refusing {
        async fn info(&self) -> Result<NodeGetInfoResponse, CallError> {
            Ok(NodeGetInfoResponse::default())
        }
        async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CallError> {
            Ok(BTreeSet::new())
        }
        async fn stage(&self, _: NodeStageVolumeRequest) -> Result<(), CallError> {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Err(failed(CallErrorKind::TimedOut(Duration::from_secs(3))))
        }
        async fn unstage(&self, _: &str, _: &str) -> Result<(), CallError> {
            Ok(())
        }
        async fn publish(&self, _: NodePublishVolumeRequest) -> Result<(), CallError> {
            let (code, message) = (Code::Cancelled, String::new());
            Err(failed(CallErrorKind::Answered { code, message }))
        }
        async fn unpublish(&self, _: &str, _: &str) -> Result<(), CallError> {
            Ok(())
        }
        async fn expand(&self, _: NodeExpandVolumeRequest) -> Result<(), CallError> {
            Ok(())
        }
        async fn stats(
            &self,
            _: NodeGetVolumeStatsRequest,
        ) -> Result<NodeGetVolumeStatsResponse, CallError> {
            Ok(NodeGetVolumeStatsResponse::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_call_counts_by_what_came_of_it() {
        let (metrics, mut registry) = (CsiMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let node = MeteredCsi { inner: Arc::new(Refusing), driver: "d.example".into(), metrics };
        for _ in 0..2 {
            node.capabilities().await.unwrap();
        }
        node.stage(NodeStageVolumeRequest::default()).await.unwrap_err();
        node.publish(NodePublishVolumeRequest::default()).await.unwrap_err();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series = |method: &str, code: &str| {
            format!(
                "{{driver_name=\"d.example\",method_name=\"/csi.v1.Node/{method}\",\
                 grpc_status_code=\"{code}\",migrated=\"false\"}}"
            )
        };
        for (name, series, value) in [
            ("count", series("NodeGetCapabilities", "OK"), "2"),
            ("sum", series("NodeStageVolume", "DeadlineExceeded"), "3.0"),
            ("count", series("NodePublishVolume", "Canceled"), "1"),
        ] {
            let line = format!("csi_operations_seconds_{name}{series} {value}");
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        let slow = |line: &&str| line.contains("le=\"2.5\"") && line.contains("NodeStageVolume");
        assert!(text.lines().find(slow).is_some_and(|line| line.ends_with(" 0")), "{text}");
    }
}
