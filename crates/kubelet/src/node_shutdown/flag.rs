//! Whether the machine is about to go: one writer, many readers.

use tokio::sync::watch;

/// What the node's condition says meanwhile.
pub(crate) const NOT_READY: &str = "node is shutting down";

/// Says it. Not `Clone`: exactly one writer.
#[derive(Debug)]
pub struct ShutdownFlag(watch::Sender<bool>);

/// Knows it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ShutdownReader(watch::Receiver<bool>);

impl ShutdownFlag {
    /// Of a machine that stays, and who can know of it.
    pub fn new() -> (Self, ShutdownReader) {
        let (flag, reader) = watch::channel(false);
        (Self(flag), ShutdownReader(reader))
    }

    pub(crate) fn set(&self, is: bool) {
        self.0.send_replace(is);
    }
}

impl ShutdownReader {
    /// The machine is about to go.
    pub fn is_shutting_down(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for a change from what was last waited for. Never returns once nobody is
    /// left who could make one.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
