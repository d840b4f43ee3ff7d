//! The server as a whole: real sockets, real TLS, a real API server.

mod auth;
mod connections;
mod hostile;
mod pages;
mod plain;
mod streams;
mod view;
mod world;
