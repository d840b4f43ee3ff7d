//! What one volume needs next. Pure.

use std::time::Duration;

use kubelet_model::Mono;

use super::super::desired::Wanted;
use super::super::ingredients::{Contents, Doing, Ingredients, Lack};
use super::super::layout::VolumeName;
use super::{Made, Observed};

/// How long a pod waits for a volume that the node has no room for: another may be
/// detached meanwhile. Upstream: podAttachAndMountTimeout.
const ATTACH_WAIT: Duration = Duration::from_secs(123);

/// What a volume needs next.
pub(super) enum Next<'a> {
    Nothing,
    SetUp,
    Grow,
    /// Nothing helps but another manifest; why.
    Impossible(Option<Doing>, &'a str),
    /// The node can have no more volumes of the driver, and that has lasted.
    TooMany(&'a str),
    /// The same, and it has not lasted yet: until when it is waited.
    MayBeTooMany(&'a Lack, Mono),
}

/// Whether a volume is there, and what it needs. One whose files are older than
/// what they come from is there, and needs them written again.
pub(super) fn standing<'a>(
    name: &VolumeName,
    wanted: &'a Wanted,
    observed: &Observed,
    contents: &'a Contents,
    now: Mono,
) -> (bool, Next<'a>) {
    let made = observed.made.get(name);
    let same = made.is_some_and(|made| made.wanted == *wanted);
    match wanted {
        Wanted::Refused(why) => (false, Next::Impossible(Some(Doing::SetUp), why)),
        Wanted::Payload(spec) => {
            let kind =
                |made: &Made| matches!(&made.wanted, Wanted::Payload(s) if s.kind == spec.kind);
            let is_there = made.is_some_and(kind);
            let next = match contents.get(name) {
                Some(Err(lack)) if lack.awaited => Next::Nothing,
                Some(Err(lack)) => Next::Impossible(lack.to, &lack.why),
                Some(Ok(Ingredients::Files(content))) => {
                    let shown = made.and_then(|made| made.digest.as_ref());
                    let settled = is_there && shown == Some(&content.digest);
                    if settled { Next::Nothing } else { Next::SetUp }
                }
                None | Some(Ok(_)) => Next::Nothing,
            };
            (is_there, next)
        }
        Wanted::Csi(_) | Wanted::Claim(_) | Wanted::Disk(_) if !same => match contents.get(name) {
            Some(Err(lack)) if lack.awaited => (false, Next::Nothing),
            Some(Err(lack)) if lack.full.is_some() => {
                let until = observed.waits_since.unwrap_or(now) + ATTACH_WAIT;
                let lasts = until <= now;
                let next =
                    if lasts { Next::TooMany(&lack.why) } else { Next::MayBeTooMany(lack, until) };
                (false, next)
            }
            Some(Err(lack)) => (false, Next::Impossible(lack.to, &lack.why)),
            _ => (false, Next::SetUp),
        },
        Wanted::Csi(_) | Wanted::Claim(_)
            if republish(name, observed, contents).is_some_and(|at| at <= now) =>
        {
            (true, Next::SetUp)
        }
        Wanted::Csi(_) | Wanted::Claim(_) => {
            let bytes = contents.get(name).and_then(|all| all.as_ref().ok()?.wanted_bytes());
            let grown = made.and_then(|made| made.bytes);
            // Larger than it was told to be, or never told by this life of the agent.
            (true, if bytes > grown { Next::Grow } else { Next::Nothing })
        }
        _ => (same, if same { Next::Nothing } else { Next::SetUp }),
    }
}

/// When a driver that wants it is asked again for a volume that is made.
pub(super) fn republish(
    name: &VolumeName,
    observed: &Observed,
    contents: &Contents,
) -> Option<Mono> {
    let wants =
        contents.get(name).and_then(|all| all.as_ref().ok()).is_some_and(Ingredients::republishes);
    let made = observed.made.get(name).filter(|_| wants)?;
    Some(made.at + observed.republish_every)
}
