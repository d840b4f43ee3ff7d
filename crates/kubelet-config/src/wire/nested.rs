//! The structs inside `KubeletConfiguration`. Types only, like their parent.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fields::{WireType, wire_struct};
use crate::go_duration::GoDuration;
use crate::quantity::Quantity;

wire_struct! {
    /// How callers of the API prove who they are.
    pub struct Authentication {
        /// Client certificates.
        x509 / "x509": X509Authentication,
        /// Bearer tokens, checked by the API server.
        webhook / "webhook": WebhookAuthentication,
        /// Callers without credentials.
        anonymous / "anonymous": AnonymousAuthentication,
    }
}
wire_struct! {
    /// Client certificates.
    pub struct X509Authentication {
        /// Authorities that sign them.
        client_ca_file / "clientCAFile": String,
    }
}
wire_struct! {
    /// Token review by the API server.
    pub struct WebhookAuthentication {
        /// Ask the API server.
        enabled / "enabled": bool,
        /// How long an answer is kept.
        cache_ttl / "cacheTTL": GoDuration,
    }
}
wire_struct! {
    /// Callers without credentials.
    pub struct AnonymousAuthentication {
        /// Let them in as system:anonymous.
        enabled / "enabled": bool,
    }
}
wire_struct! {
    /// What callers may do.
    pub struct Authorization {
        /// AlwaysAllow or Webhook.
        mode / "mode": String,
        /// Access review by the API server.
        webhook / "webhook": WebhookAuthorization,
    }
}
wire_struct! {
    /// Access review by the API server.
    pub struct WebhookAuthorization {
        /// How long a yes is kept.
        cache_authorized_ttl / "cacheAuthorizedTTL": GoDuration,
        /// How long a no is kept.
        cache_unauthorized_ttl / "cacheUnauthorizedTTL": GoDuration,
    }
}
wire_struct! {
    /// Swap for pods.
    pub struct MemorySwap {
        /// Empty, NoSwap or LimitedSwap.
        swap_behavior / "swapBehavior": String,
    }
}
wire_struct! {
    /// Restart back-off.
    pub struct CrashLoopBackOff {
        /// Longest wait between restarts.
        max_container_restart_period / "maxContainerRestartPeriod": GoDuration,
    }
}
wire_struct! {
    /// User namespaces of pods.
    pub struct UserNamespaces {
        /// Ids mapped per pod.
        ids_per_pod / "idsPerPod": i64,
    }
}
wire_struct! {
    /// OpenTelemetry traces.
    pub struct Tracing {
        /// Collector.
        endpoint / "endpoint": String,
        /// Share of requests traced.
        sampling_rate_per_million / "samplingRatePerMillion": i32,
    }
}
wire_struct! {
    /// The agent's log.
    pub struct Logging {
        /// text or json.
        format / "format": String,
        /// Longest time a line stays buffered.
        flush_frequency / "flushFrequency": DurationOrNanos,
        /// How much is logged; higher is more.
        verbosity / "verbosity": u32,
        /// Verbosity by source file.
        vmodule / "vmodule": Vec<VModuleItem>,
        /// Options per format.
        options / "options": FormatOptions,
    }
}
wire_struct! {
    /// Options per log format.
    pub struct FormatOptions {
        /// Of the text format.
        text / "text": OutputRouting,
        /// Of the JSON format.
        json / "json": OutputRouting,
    }
}
wire_struct! {
    /// Where log lines go.
    pub struct OutputRouting {
        /// Errors to stderr, the rest to stdout.
        split_stream / "splitStream": bool,
        /// Bytes of buffer for the rest.
        info_buffer_size / "infoBufferSize": Quantity,
    }
}

/// Verbosity of the files that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModuleItem {
    /// File name pattern.
    pub file_pattern: String,
    /// Its verbosity.
    pub verbosity: u32,
}

/// Memory kept on one NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryReservation {
    /// The NUMA node.
    pub numa_node: i32,
    /// Amount by kind of memory.
    pub limits: BTreeMap<String, Quantity>,
}

/// Shutdown time for pods of one priority and above.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownGracePeriod {
    /// Lowest priority it is for.
    pub priority: i32,
    /// Seconds.
    pub shutdown_grace_period_seconds: i64,
}

/// A node taint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
    /// Must not be set here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// A duration that older files write as a number of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DurationOrNanos(pub GoDuration);

impl WireType for DurationOrNanos {}

impl Serialize for DurationOrNanos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DurationOrNanos {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = DurationOrNanos;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"5s\" or a number of nanoseconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<DurationOrNanos, E> {
                text.parse().map(DurationOrNanos).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, nanos: i64) -> Result<DurationOrNanos, E> {
                Ok(DurationOrNanos(GoDuration::from_nanos(nanos)))
            }
            fn visit_u64<E: de::Error>(self, nanos: u64) -> Result<DurationOrNanos, E> {
                i64::try_from(nanos)
                    .map_err(|_| E::custom("too many nanoseconds"))
                    .and_then(|n| self.visit_i64(n))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
