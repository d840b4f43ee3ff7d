//! Upstream's correlation of events: counting the same, combining the similar,
//! holding back the too many. Pure: the time is an argument.
//!
//! Upstream: client-go tools/record/events_cache.go.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kubelet_model::{EventObject, Mono};

use super::lru::{Key, Lru};
use super::{Event, News};

/// Entries of each cache.
pub(super) const CACHE_MAX: usize = 4_096;
/// From so many different messages on, similar events are combined.
const SIMILAR_MAX: usize = 10;
/// Events further apart are not similar any more.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// Events about one object before they are held back.
const BURST: u32 = 25;
/// Then one is let through in this time.
const REFILL: Duration = Duration::from_secs(300);
/// In front of the message of combined events.
const COMBINED: &str = "(combined from similar events): ";

/// Remembers enough of the past to judge the next event.
#[derive(Debug)]
pub(super) struct Correlator {
    similar: Lru<Group>,
    seen: Lru<(u32, Timestamp)>,
    budgets: Lru<Budget>,
}

#[derive(Debug)]
struct Group {
    /// Hashes of the different messages.
    messages: BTreeSet<Key>,
    last: Mono,
}

/// A bucket of tokens, in time: each event takes one `REFILL` out of it.
#[derive(Debug, Clone, Copy)]
struct Budget {
    left: Duration,
    at: Mono,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            similar: Lru::new(CACHE_MAX),
            seen: Lru::new(CACHE_MAX),
            budgets: Lru::new(CACHE_MAX),
        }
    }

    /// Judges one event that happens now: what to show, and in place of what.
    /// `None` if it is one too many about its object.
    pub(super) fn correlate(
        &mut self,
        news: News,
        wall: Timestamp,
        now: Mono,
    ) -> Option<(Key, Event)> {
        let News { object, kind, reason, mut message } = news;
        let whole = whole(&object);
        // Everything but the message and the part of the object.
        let group = Key::of((&whole, kind, reason));
        let key = if self.is_combined(group, &message, now) {
            message.insert_str(0, COMBINED);
            group
        } else {
            Key::of((&object, kind, reason, &message))
        };
        let (count, first) = match self.seen.take(key) {
            Some((count, first)) => (count.saturating_add(1), first),
            None => (1, wall),
        };
        self.seen.put(key, (count, first));
        if !self.is_affordable(Key::of((&whole, kind)), now) {
            return None;
        }
        Some((key, Event { object, kind, reason, message, count, first, last: wall }))
    }

    /// Is this one of so many different messages that they are shown as one?
    fn is_combined(&mut self, key: Key, message: &str, now: Mono) -> bool {
        let recent = |group: &Group| now.since(group.last) <= SIMILAR_WITHIN;
        let mut group = self
            .similar
            .take(key)
            .filter(recent)
            .unwrap_or_else(|| Group { messages: BTreeSet::new(), last: now });
        group.last = now;
        let hash = Key::of(message);
        group.messages.insert(hash);
        let combined = group.messages.len() >= SIMILAR_MAX;
        if combined {
            // Those known before stay known, and are still counted one by one.
            group.messages.remove(&hash);
        }
        self.similar.put(key, group);
        combined
    }

    fn is_affordable(&mut self, key: Key, now: Mono) -> bool {
        let full = REFILL * BURST;
        let mut budget = match self.budgets.take(key) {
            Some(old) => Budget { left: full.min(old.left + now.since(old.at)), at: now },
            None => Budget { left: full, at: now },
        };
        let left = budget.left.checked_sub(REFILL);
        budget.left = left.unwrap_or(budget.left);
        self.budgets.put(key, budget);
        left.is_some()
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 3] {
        [self.similar.len(), self.seen.len(), self.budgets.len()]
    }
}

/// The object without the part of it that an event names.
fn whole(object: &EventObject) -> EventObject {
    let mut whole = object.clone();
    if let EventObject::Pod { field_path, .. } = &mut whole {
        field_path.clear();
    }
    whole
}
