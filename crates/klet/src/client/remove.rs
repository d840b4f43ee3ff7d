//! `klet rm`: removes the manifest a pod came from, and waits for the pod's end.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::ArgMatches;
use kubelet::server::local::wire::{PodsAnswer, RemoveAnswer};
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::which;
use crate::cli::say;

/// How often it is looked whether the pod is gone.
const EVERY: Duration = Duration::from_millis(250);
/// Beyond its grace, what a pod's end may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let wanted = matches.get_one::<String>("pod").map_or("", String::as_str);
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let pods: PodsAnswer = endpoint.get("/pods").await?;
    let name = which::full_name(which::find(&pods, wanted, namespace)?);
    let path = format!("/remove/{name}");
    let plan: RemoveAnswer = endpoint.post(&format!("{path}?dry_run=true"), &()).await?;
    if matches.get_flag("dry-run") {
        say(&format!("would remove {}, which defines {name}\n", plan.file));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("removing {}, which defines {name}\n", plan.file));
    let done: RemoveAnswer = endpoint.post(&path, &()).await?;
    if matches.get_one::<bool>("wait") == Some(&true) {
        wait_gone(endpoint, &name, &done).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn wait_gone(endpoint: &Endpoint, name: &str, done: &RemoveAnswer) -> anyhow::Result<()> {
    let grace = Duration::from_secs(u64::try_from(done.grace_seconds).unwrap_or(0));
    say(&format!("waiting for its end, {} s at the most before it is killed\n", grace.as_secs()));
    let limit = Instant::now() + grace.saturating_add(PATIENCE);
    loop {
        let pods: PodsAnswer = endpoint.get("/pods").await?;
        let uid = Some(done.uid.as_str());
        if !pods.items.iter().any(|item| item.pod.metadata.uid.as_deref() == uid) {
            say(&format!("{name} is gone\n"));
            return Ok(());
        }
        if Instant::now() > limit {
            bail!(
                "{name} is still there, though its manifest is gone; `klet why {name}` tells the reason"
            );
        }
        tokio::time::sleep(EVERY).await;
    }
}
