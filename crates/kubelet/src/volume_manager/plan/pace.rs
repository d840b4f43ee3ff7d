//! Which operations may be tried now: one that failed waits. Pure.

use kubelet_model::Mono;

use super::{Failure, Observed, Op};

/// What is to be done now, and what failed.
pub(super) struct Paced<'a> {
    pub ops: Vec<Op>,
    pub failed: Vec<(Op, &'a Failure)>,
    pub wake_at: Option<Mono>,
}

/// Those whose pause is over, and what is known of those that failed.
pub(super) fn pace(due: Vec<Op>, observed: &Observed, now: Mono) -> Paced<'_> {
    let mut paced = Paced { ops: Vec::new(), failed: Vec::new(), wake_at: None };
    for op in due {
        let Some(failure) = observed.failures.get(&op) else {
            paced.ops.push(op);
            continue;
        };
        paced.failed.push((op.clone(), failure));
        if failure.retry_at > now {
            let earliest = paced.wake_at.map_or(failure.retry_at, |at| at.min(failure.retry_at));
            paced.wake_at = Some(earliest);
        } else {
            paced.ops.push(op);
        }
    }
    paced
}
