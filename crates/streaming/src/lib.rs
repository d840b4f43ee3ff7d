//! Streams to a command in a container, as Kubernetes carries them.
//!
//! Owns the protocols: SPDY/3.1 frames, which work for either side, and a client
//! for commands over SPDY or a WebSocket. Knows nothing of pods, terminals or
//! the runtime's API. Upstream: apimachinery's util/httpstream and moby/spdystream,
//! client-go's tools/remotecommand.

mod command;
pub mod spdy;
mod upgrade;

pub use command::{Channel, Command, Event, StreamError, Wants};
