//! Summaries of machines made of directories, and of this machine.

mod fake;
mod machines;
