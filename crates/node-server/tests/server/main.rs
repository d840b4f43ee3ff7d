//! The server as a whole: real sockets, real TLS, a real API server.

mod auth;
mod connections;
mod view;
mod world;
