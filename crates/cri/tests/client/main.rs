//! The client against a fake runtime on a real unix socket.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the fake runtime is a process of its own in spirit: it owns its threads and time"
)]

mod calls;
mod connection;
mod events;
mod fake;
mod raw;
