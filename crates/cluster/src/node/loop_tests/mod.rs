//! The loops under paused time: what is asked of the server, and when.

mod fake;
mod lease;
mod status;
