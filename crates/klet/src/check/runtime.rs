//! Whether the container runtime answers.

use std::time::Duration;

use cri::Runtime;

/// Long enough for a busy runtime, short enough for a person to wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Name and version of the runtime at an endpoint, or why there is no answer.
pub async fn runtime_answers(endpoint: &str) -> Result<String, String> {
    let config = cri::ClientConfig {
        runtime_endpoint: endpoint.to_owned(),
        image_endpoint: None,
        request_timeout: ANSWER_LIMIT,
    };
    let client = cri::CriClient::new(config).map_err(|error| error.to_string())?;
    match tokio::time::timeout(ANSWER_LIMIT, client.version()).await {
        Ok(Ok(version)) => Ok(format!("{} {}", version.runtime_name, version.runtime_version)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER_LIMIT:?}")),
    }
}
