//! Which workers there are, and what a worker tells.

mod events;
mod kill;
mod lifecycle;
