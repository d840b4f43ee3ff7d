//! Summaries of machines made of directories, and of this machine.

mod cadvisor;
mod fake;
mod machines;
