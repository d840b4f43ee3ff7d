//! `klet logs`.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::ArgMatches;
use http_body_util::BodyExt;
use kubelet::server::local::wire::PodsAnswer;
use kubelet_config::go_duration::GoDuration;

use super::endpoint::Endpoint;
use super::{emit, which};

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let wanted = matches.get_one::<String>("pod").map_or("", String::as_str);
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let query = query(matches)?;
    let pods: PodsAnswer = endpoint.get("/pods").await?;
    let pod = which::find(&pods, wanted, namespace)?;
    let container =
        which::container(pod, matches.get_one::<String>("container").map(String::as_str))?;
    let path = format!("/logs/{}/{container}?{query}", which::full_name(pod));
    let mut body = endpoint.stream(&path).await?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| anyhow!("the log broke off: {error}"))?;
        if let Ok(bytes) = frame.into_data() {
            emit(&bytes)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn query(matches: &ArgMatches) -> anyhow::Result<String> {
    let mut query: Vec<String> = ["follow", "previous", "timestamps"]
        .into_iter()
        .filter(|name| matches.get_flag(name))
        .map(|name| format!("{name}=true"))
        .collect();
    query.extend(matches.get_one::<u64>("tail").map(|lines| format!("tail={lines}")));
    if let Some(text) = matches.get_one::<String>("since") {
        let since: GoDuration =
            text.parse().with_context(|| format!("--since={text}: give it like 30s, 10m or 2h"))?;
        query.push(format!("since_ms={}", since.to_std().as_millis()));
    }
    Ok(query.join("&"))
}
