//! The node agent. `mod` order is data order: sources say what should run, the
//! PLEG says what does, workers plan and perform, status says how it went.

pub mod settings;
pub mod ports;
pub mod metrics;
pub mod events;
pub mod followers;
mod lane;
mod metered;
pub mod progress;
pub mod pulse;
pub mod object_cache;
pub mod cluster_lists;
pub mod offline;
pub mod pod_sources;
pub mod pleg;
pub mod container_logs;
pub mod pod_manager;
pub mod pod_plan;
pub mod container_manager;
pub mod admission;
pub mod allocation;
pub mod image_manager;
pub mod runtime_manager;
pub mod plugin_manager;
pub mod volume_manager;
pub mod probe_manager;
pub mod pod_workers;
pub mod status_manager;
pub mod pod_usage;
pub mod eviction;
pub mod node_shutdown;
pub mod why;
pub mod server;
pub mod join;
pub mod wiring;
mod machine;
mod node_checks;
mod user_ids;
pub mod node;

pub use settings::Settings;
