//! What keeps a whole pod from going on. Pure.

use super::{Finding, Rank};
use crate::progress::Obstacle;

/// The answer to each obstacle; no catch-all, so that a new one gets its own.
pub(super) fn answer(obstacle: &Obstacle, host_network: bool) -> Finding {
    match obstacle {
        Obstacle::Runtime(why) => {
            Finding::new(Rank::Blocked, "The container runtime is not usable.")
                .waits_for("the container runtime")
                .error(why)
                .advise("Look at it: `systemctl status containerd`, `journalctl -u containerd -n 50`.")
                .advise("If it runs, check that klet asks the right socket: `klet check` shows it (--container-runtime-endpoint).")
                .advise("Nothing else to do: klet goes on by itself once the runtime answers. Running containers are not touched.")
        }
        Obstacle::Network(why) => {
            let finding = Finding::new(Rank::Blocked, "The pod network is not ready.")
                .waits_for("the runtime's network (CNI)")
                .error(why)
                .advise("Put a CNI configuration into /etc/cni/net.d and its plugins into /opt/cni/bin; the runtime picks them up by itself.");
            match host_network {
                true => finding.advise("This pod has hostNetwork: true and should not wait for it: look at the runtime's log."),
                false => finding.advise("A pod with hostNetwork: true starts without."),
            }
        }
        Obstacle::Observation => {
            Finding::new(Rank::Underway, "Waiting for the runtime to tell how the pod is.")
                .waits_for("a fresh look at the runtime")
                .advise("This takes moments. If it lasts, the runtime is slow: `crictl ps` should answer at once, else look at `journalctl -u containerd`.")
        }
        Obstacle::Volumes { volumes, problems, leaving } => {
            super::volumes::answer(volumes, problems, *leaving)
        }
        Obstacle::Turn => {
            Finding::new(Rank::Underway, "Other pods have their turn at the runtime.")
                .waits_for("its turn; a few pods are started at a time")
                .advise("Nothing: its turn comes by itself. `klet pods -A` shows which pods are being started.")
        }
        Obstacle::Admission(wait) => super::rejected::undecided(wait),
        Obstacle::NameTaken => {
            Finding::new(Rank::Underway, "A pod of the same name is still ending.")
                .waits_for("the end of the pod that had this name before")
                .advise("Nothing: it starts as soon as the old one is gone, at the latest after its terminationGracePeriodSeconds.")
                .advise("Two manifests with the same name and namespace exclude each other: rename one.")
        }
        Obstacle::Retry => {
            // What is known of a container says more, so this comes after it.
            Finding::new(Rank::Underway, "A step failed and rests before it is tried again.")
                .waits_for("the next try")
                .advise("The last error says what to mend; klet tries again by itself, soon at first and then less often.")
        }
        Obstacle::Nothing => Finding::new(Rank::Fine, "The pod is as it should be.")
            .advise("Nothing to do."),
    }
}
