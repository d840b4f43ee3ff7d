//! Whether the container runtime and the image service answer.
//!
//! Asks, with a limit of time; changes nothing.

use std::time::Duration;

use cri::{CriClient, Runtime};
use kubelet_config::Outcome;

use super::report::Answer;

/// Long enough for a busy runtime, short enough for a person to wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Any image will do: not having it is an answer too.
const ANY_IMAGE: &str = "registry.k8s.io/pause:3.10";

/// Asks the runtime, and the image service where it lives elsewhere.
///
/// Asks even when there are problems: they are no reason to hide another one.
/// An endpoint that is itself a problem is not asked.
pub fn ask(outcome: &Outcome) -> (Option<Answer>, Option<Answer>) {
    let endpoint = |field: &str| {
        let text = outcome.effective.get(field)?.as_str().filter(|text| !text.is_empty())?;
        let refused = outcome.problems.iter().any(|problem| problem.subject == field);
        (!refused).then(|| text.to_owned())
    };
    let runtime = endpoint("containerRuntimeEndpoint");
    let images = endpoint("imageServiceEndpoint").filter(|images| Some(images) != runtime.as_ref());
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(tokio) => {
            let runtime = runtime.map(|endpoint| {
                let answer = tokio.block_on(runtime_answers(&endpoint));
                Answer { endpoint, answer }
            });
            let images = images.map(|endpoint| {
                let answer = tokio.block_on(images_answer(&endpoint));
                Answer { endpoint, answer }
            });
            (runtime, images)
        }
        Err(error) => {
            let wrong = format!("cannot start the asynchronous runtime: {error}");
            let failed = |endpoint| Answer { endpoint, answer: Err(wrong.clone()) };
            (runtime.map(failed), images.map(failed))
        }
    }
}

fn client(endpoint: &str) -> Result<CriClient, String> {
    let config = cri::ClientConfig {
        runtime_endpoint: endpoint.to_owned(),
        image_endpoint: None,
        request_timeout: ANSWER_LIMIT,
    };
    CriClient::new(config).map_err(|error| error.to_string())
}

/// Name and version of the runtime at an endpoint, or why there is no answer.
async fn runtime_answers(endpoint: &str) -> Result<String, String> {
    let client = client(endpoint)?;
    match tokio::time::timeout(ANSWER_LIMIT, client.version()).await {
        Ok(Ok(version)) => Ok(format!("{} {}", version.runtime_name, version.runtime_version)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER_LIMIT:?}")),
    }
}

/// Whether an image service is at an endpoint. It has no call for its version,
/// so any answer to a question about an image counts.
async fn images_answer(endpoint: &str) -> Result<String, String> {
    let client = client(endpoint)?;
    let image = cri::v1::ImageSpec { image: ANY_IMAGE.to_owned(), ..Default::default() };
    match tokio::time::timeout(ANSWER_LIMIT, client.image_status(image)).await {
        Ok(Ok(_)) => Ok("image service".to_owned()),
        Ok(Err(error)) if error.code().is_some() => {
            if error.is_unimplemented() || error.is_unreachable() {
                Err(error.to_string())
            } else {
                Ok("image service".to_owned())
            }
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER_LIMIT:?}")),
    }
}
