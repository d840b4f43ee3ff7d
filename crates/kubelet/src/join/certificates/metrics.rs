//! Metrics of certificates, under upstream's names; those of certificates that are kept.
//!
//! Upstream: pkg/kubelet/certificate/kubelet.go, cmd/kubelet/app/server.go.

use std::fmt;
use std::sync::Arc;

use cluster::certificates::Kind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::NodeCertificates;

/// Reads how certificates stand when it is asked.
#[derive(Debug)]
struct Figures(Arc<NodeCertificates>);

impl NodeCertificates {
    /// Their metrics.
    pub fn collector(self: &Arc<Self>) -> Box<dyn Collector> {
        Box::new(Figures(Arc::clone(self)))
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self(certificates) = self;
        for (kind, left, left_help, errors) in [
            (
                Kind::Client,
                "kubelet_certificate_manager_client_ttl_seconds",
                "Seconds until the client certificate expires",
                "kubelet_certificate_manager_client_expiration_renew_errors",
            ),
            (
                Kind::Serving,
                "kubelet_certificate_manager_server_ttl_seconds",
                "Seconds until the serving certificate expires",
                "kubelet_server_expiration_renew_errors",
            ),
        ] {
            let Some(state) = certificates.state(kind) else { continue };
            let seconds = state.seconds_left((certificates.clock)());
            // Without one, as upstream; no certificate lasts long enough to round.
            let seconds = seconds.map_or(f64::INFINITY, |seconds| seconds as f64);
            let place = encoder.encode_descriptor(left, left_help, None, MetricType::Gauge)?;
            ConstGauge::new(seconds).encode(place)?;
            let help = "Attempts to get a certificate that failed";
            let place = encoder.encode_descriptor(errors, help, None, MetricType::Counter)?;
            ConstCounter::new(state.renew_errors).encode(place)?;
            if kind == Kind::Serving {
                let name = "kubelet_certificate_manager_server_rotation_seconds";
                let help = "Seconds that serving certificates lived before they were replaced";
                let place = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
                certificates.lived.encode(place)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cluster::certificates::CertificateState;
    use tokio::sync::watch;

    use super::*;
    use crate::metrics::Metrics;
    use crate::ports::{Jitter, SystemClock};

    #[test]
    fn certificates_that_are_kept_have_metrics() {
        let clock = Arc::new(SystemClock::new());
        let certificates = Arc::new(NodeCertificates::new(clock, Jitter::seeded(1)));
        let metrics = Metrics::new();
        metrics.collect(certificates.collector());
        assert!(!metrics.text().contains("certificate"));
        let state = CertificateState { renew_errors: 3, ..CertificateState::default() };
        certificates.keep(Kind::Client, watch::channel(state).1);
        certificates.keep(Kind::Serving, watch::channel(CertificateState::default()).1);
        certificates.lived.observe(70.0);
        let text = metrics.text();
        for line in [
            "\nkubelet_certificate_manager_client_ttl_seconds inf",
            "\nkubelet_certificate_manager_client_expiration_renew_errors_total 3",
            "\nkubelet_certificate_manager_server_ttl_seconds inf",
            "\nkubelet_server_expiration_renew_errors_total 0",
            "\nkubelet_certificate_manager_server_rotation_seconds_bucket{le=\"60.0\"} 0",
            "\nkubelet_certificate_manager_server_rotation_seconds_bucket{le=\"3600.0\"} 1",
        ] {
            assert!(text.to_lowercase().contains(line), "{line} is not in {text}");
        }
    }
}
