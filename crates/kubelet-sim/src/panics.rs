//! Notices panics of the agent's tasks.
//!
//! The agent restarts a worker that panics, so a panic would pass unseen;
//! in simulation it fails the run.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Remembers panics of this thread from now on, besides the usual report.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            LAST.with(|last| *last.borrow_mut() = Some(panic.to_string()));
            usual(panic);
        }));
    });
    let _ = take();
}

/// The newest panic of this thread since the last call.
pub(crate) fn take() -> Option<String> {
    LAST.with(|last| last.borrow_mut().take())
}
