//! Named courses of events that bit upstream or would bite us.

use std::time::Duration;

use kubelet_sim::{LiveContainer, PodTemplate, SimWorld};

mod admission;
mod api;
mod csi;
mod deadlines;
mod disks;
mod hooks;
mod idle;
mod images;
mod kills;
mod lifecycles;
mod lost_answers;
mod outages;
mod probes;
mod resizes;
mod shutdowns;
mod static_pods;
mod volumes;

/// Longer than any settled reaction takes.
const SOON: Duration = Duration::from_secs(60);

/// A node whose agent runs, with one settled pod `web` in `web.json`.
fn node_with(template: &PodTemplate) -> (SimWorld, PodTemplate) {
    let mut node = SimWorld::new(1);
    node.start_agent();
    let pod = node.put("web.json", template);
    node.settle(SOON);
    (node, pod)
}

/// The only running container of `web`.
fn web(node: &SimWorld) -> LiveContainer {
    let mut running = node.running("web");
    node.expect(running.len() == 1, &format!("one container of web runs: {running:?}"));
    running.remove(0)
}

/// Fails unless exactly this container still runs.
fn expect_untouched(node: &SimWorld, before: &LiveContainer) {
    let now = web(node);
    node.expect(now == *before, &format!("{before:?} was touched: {now:?}"));
}
