//! What a pod that ends was given, over all orders to end it.
//!
//! Owns the termination in force. It never ends later than one that came before:
//! whatever is ordered, and in whatever order it comes, grace only shrinks. Time in
//! which nothing could be stopped does not count, until the first stop is asked for.
//! Upstream: calculateEffectiveGracePeriod in pkg/kubelet/pod_workers.go.

use kubelet_model::{Grace, Mono, ObservedPod};

use super::Termination;

/// The end of a pod, once it has begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending {
    in_force: Option<Termination>,
    /// What the annotations of a pod without a spec promise, looked up once: the
    /// answer must not change when its first container has ended.
    promised: Option<Grace>,
    /// Before this nothing could be stopped.
    from: Mono,
    /// Nothing can be stopped now.
    held: bool,
    /// Stops have been asked for.
    begun: bool,
}

impl Ending {
    /// The termination in force once this one is ordered, too.
    pub fn order(&mut self, ordered: Termination) -> Termination {
        let counted = |own: Termination| Termination { since: own.since.max(self.from), ..own };
        let (known, ordered) = (self.in_force.map(counted), counted(ordered));
        let sooner = known.filter(|known| known.ends_at() <= ordered.ends_at());
        *self.in_force.insert(sooner.unwrap_or(ordered))
    }

    /// The runtime cannot be asked to stop anything.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Time has passed. None of it counts if nothing could be stopped and no container
    /// has been told to end yet.
    pub fn go_on(&mut self, now: Mono) {
        if std::mem::take(&mut self.held) && !self.begun {
            self.from = now;
        }
    }

    /// Containers are told to end: from here on time counts.
    pub fn begin(&mut self) {
        self.begun = true;
    }

    /// The same for a pod that only the runtime knows: what its containers'
    /// annotations promise stands for what is ordered.
    pub fn order_unknown(&mut self, seen: &ObservedPod, ordered: Termination) -> Termination {
        let annotated = || seen.annotated_grace().unwrap_or(ordered.grace);
        let grace = *self.promised.get_or_insert_with(annotated);
        self.order(Termination { grace, ..ordered })
    }
}
