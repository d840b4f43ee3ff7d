//! The machine's login manager, as far as it tells of shutdowns and can be made to wait.

use std::time::Duration;

use async_trait::async_trait;

/// Why it cannot be talked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// Nobody is there, or the conversation broke off.
    #[error("the login manager cannot be reached: {0}")]
    Unreachable(String),
    /// It says no.
    #[error("the login manager refused {call}: {why}")]
    Refused {
        /// What it was asked for.
        call: &'static str,
        /// In its words.
        why: String,
    },
}

/// Holds a shutdown up until it is dropped.
pub type Inhibitor = Box<dyn Send + Sync>;

/// Begins conversations.
#[async_trait]
pub trait LoginManager: Send + Sync + 'static {
    /// A new conversation, in which every shutdown from now on is told.
    async fn open(&self) -> Result<Box<dyn LoginSession>, LoginError>;
}

/// One conversation.
#[async_trait]
pub trait LoginSession: Send {
    /// How long it waits for those who hold a shutdown up.
    async fn inhibit_delay(&mut self) -> Result<Duration, LoginError>;
    /// Has it read its configuration again, sooner or later.
    async fn reload(&mut self) -> Result<(), LoginError>;
    /// Holds shutdowns up.
    async fn inhibit(&mut self) -> Result<Inhibitor, LoginError>;
    /// Waits until the machine is about to go, or is not after all. Whoever stops to wait
    /// misses nothing.
    async fn next(&mut self) -> Result<bool, LoginError>;
}
