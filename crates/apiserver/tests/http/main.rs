//! The server over real sockets and TLS, through a client that knows HTTP alone.

// Connections are driven by tasks; there is no simulation here.
#![allow(clippy::disallowed_methods)]

mod auth;
mod certificates;
mod client;
mod hostile;
mod in_process;
mod objects;
mod watch;
