//! The clock port over the world's clocks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kubelet::ports::Clock;
use kubelet_model::Mono;

use crate::world::World;

/// The clock of one life of the agent.
pub struct SimClock {
    world: Arc<World>,
    born: Duration,
}

impl SimClock {
    /// A clock whose monotonic zero is now.
    pub fn new(world: Arc<World>) -> Self {
        let born = world.now();
        Self { world, born }
    }
}

impl Clock for SimClock {
    fn wall(&self) -> Timestamp {
        self.world.lock().wall()
    }
    fn mono(&self) -> Mono {
        Mono(self.world.now().saturating_sub(self.born))
    }
}
