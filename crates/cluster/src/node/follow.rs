//! Follows the node's own Node object, and publishes it.
//!
//! What is known stays known while the server is away. Upstream: the node informer of
//! pkg/kubelet/kubelet.go.

use std::sync::Arc;

use api_client::{Follower, News, Selection};

use super::context::Context;
use super::health::FOLLOW;

/// Runs for ever.
pub(super) async fn run(context: Arc<Context>) {
    let selector = format!("metadata.name={}", context.settings.name);
    let selection =
        Selection { path: "/api/v1/nodes".to_owned(), query: vec![("fieldSelector", selector)] };
    let api = Arc::clone(&context.api);
    let mut follower = Follower::new(api, selection, Arc::clone(&context.spread));
    let mut is_failing = false;
    loop {
        let networks = context.latest.get().map(|node| node.pod_cidrs());
        let news = follower.next().await;
        if is_failing && !matches!(news, News::Failing(_)) {
            is_failing = false;
            context.works(FOLLOW, |_, _| {});
        }
        match news {
            News::All(mut nodes) => match nodes.pop() {
                Some(node) => context.latest.replace(node),
                None => context.latest.forget(None),
            },
            News::Put(node) => drop(context.latest.offer(node)),
            News::Gone(node) => {
                let reason = "it was deleted; a restart registers it again";
                tracing::warn!(node = context.settings.name, reason, "the Node object is gone");
                context.latest.forget(Some(node));
            }
            News::Failing(error) => {
                context.fails(FOLLOW, &error.to_string());
                if !is_failing {
                    tracing::warn!(%error, "cannot follow the Node object");
                }
                is_failing = true;
            }
        }
        // The runtime waits for the pods' networks.
        let now = context.latest.get().map(|node| node.pod_cidrs());
        if now.as_ref().is_some_and(|now| !now.is_empty()) && now != networks {
            context.poke.notify_one();
        }
    }
}
