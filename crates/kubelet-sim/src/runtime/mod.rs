//! A CRI runtime as containerd behaves, without processes.
//!
//! `model` holds the objects, `messages` shows them, `events` tells of them,
//! `fate` decides how a call goes, `calls` are the calls themselves.

mod calls;
mod events;
mod fate;
mod messages;
mod model;
mod programs;

pub use calls::SimRuntime;
pub(crate) use fate::Call;
pub use fate::Twist;
pub(crate) use model::{Container, Objects, Sandbox, short};
pub use programs::Program;
