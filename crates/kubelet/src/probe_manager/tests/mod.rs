//! Workers under paused time, and commands in a runtime behind a real socket.

mod exec;
mod metrics;
mod timing;
mod world;
