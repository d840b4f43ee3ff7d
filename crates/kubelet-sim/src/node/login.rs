//! The node's login manager: tells of shutdowns and counts who holds them up.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet::ports::{Inhibitor, LoginError, LoginManager, LoginSession};
use tokio::sync::mpsc;

use crate::world::World;

/// How long it waits for anybody.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What the world remembers of it.
#[derive(Default)]
pub(crate) struct Shutdowns {
    /// Who listens. A test sends two signals at the most.
    pub(crate) signals: Option<mpsc::UnboundedSender<bool>>,
    /// How many hold a shutdown up.
    pub(crate) locks: usize,
}

/// The login manager.
pub struct SimLogin(Arc<World>);

impl SimLogin {
    /// That of a world.
    pub fn new(world: Arc<World>) -> Self {
        Self(world)
    }
}

struct Lock(Arc<World>);

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.shutdowns.locks = state.shutdowns.locks.saturating_sub(1);
    }
}

struct Talk(Arc<World>, mpsc::UnboundedReceiver<bool>);

#[async_trait]
impl LoginManager for SimLogin {
    async fn open(&self) -> Result<Box<dyn LoginSession>, LoginError> {
        let (signals, receiver) = mpsc::unbounded_channel();
        self.0.lock().shutdowns.signals = Some(signals);
        Ok(Box::new(Talk(Arc::clone(&self.0), receiver)))
    }
}

#[async_trait]
impl LoginSession for Talk {
    async fn inhibit_delay(&mut self) -> Result<Duration, LoginError> {
        Ok(PATIENCE)
    }

    async fn reload(&mut self) -> Result<(), LoginError> {
        Ok(())
    }

    async fn inhibit(&mut self) -> Result<Inhibitor, LoginError> {
        self.0.lock().shutdowns.locks += 1;
        Ok(Box::new(Lock(Arc::clone(&self.0))))
    }

    async fn next(&mut self) -> Result<bool, LoginError> {
        let gone = || LoginError::Unreachable("the other side hung up".to_owned());
        self.1.recv().await.ok_or_else(gone)
    }
}
