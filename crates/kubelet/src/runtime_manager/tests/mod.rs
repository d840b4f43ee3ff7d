//! Actions on a runtime made of paper: what users are told, and in which order
//! things are done.

mod calls;
mod events;
mod logs;
mod pre_stop;
