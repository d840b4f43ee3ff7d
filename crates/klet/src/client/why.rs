//! `klet why`.

use std::process::ExitCode;

use clap::ArgMatches;
use kubelet::server::local::wire::PodsAnswer;
use kubelet::why::{Explanation, render};

use super::endpoint::Endpoint;
use super::{emit, which};

pub async fn run(endpoint: &Endpoint, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let wanted = matches.get_one::<String>("pod").map_or("node", String::as_str);
    let namespace = matches.get_one::<String>("namespace").map(String::as_str);
    let pods: PodsAnswer = endpoint.get("/pods").await?;
    let path = match which::find(&pods, wanted, namespace) {
        Ok(pod) => format!("/why/{}", which::full_name(pod)),
        // A pod may be called node, too; then it goes first.
        Err(_) if wanted == "node" => "/why".to_owned(),
        Err(error) => return Err(error),
    };
    let explanation: Explanation = endpoint.get(&path).await?;
    let text = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => format!("{}\n", serde_json::to_string_pretty(&explanation)?),
        _ => render(&explanation, pods.now),
    };
    emit(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
