//! Workers under paused time, and commands in a runtime behind a real socket.

mod exec;
mod timing;
mod world;
