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
    let explanation: Explanation = match which::find(&pods, wanted, namespace) {
        Ok(pod) => endpoint.get(&format!("/why/{}", which::full_name(pod))).await?,
        // A pod may be called node, too; then it goes first.
        Err(_) if wanted == "node" => endpoint.get("/why").await?,
        // There may be a manifest that was refused.
        Err(error) => match endpoint.get(&manifest_path(wanted, namespace)?).await {
            Ok(explanation) => explanation,
            Err(_) => return Err(error),
        },
    };
    let text = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => format!("{}\n", serde_json::to_string_pretty(&explanation)?),
        _ => render(&explanation, pods.now),
    };
    emit(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Where to ask for manifests of a pod that is not there.
fn manifest_path(wanted: &str, namespace: Option<&str>) -> anyhow::Result<String> {
    let (namespace, name) = which::split(wanted, namespace)?;
    Ok(match namespace {
        Some(namespace) => format!("/manifest/{name}?namespace={namespace}"),
        None => format!("/manifest/{name}"),
    })
}
