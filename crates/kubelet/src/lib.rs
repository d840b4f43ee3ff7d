//! The node agent. `mod` order is data order: sources say what should run, the
//! PLEG says what does, workers plan and perform, status says how it went.

pub mod settings;
pub mod ports;
pub mod pod_sources;
