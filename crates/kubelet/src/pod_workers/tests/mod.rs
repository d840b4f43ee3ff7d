//! Which workers there are, and what a worker tells.

mod events;
mod lifecycle;
