//! Tokens of service accounts as files: made by an API server, renewed before they end,
//! for whoever they are meant for alone. A real containerd, real sockets.

use anyhow::{Result, ensure};
use api_client::Call;
use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{ApiOptions, Cluster};

const NAME: &str = "service-account-token";
/// Long enough for a test to see one before it ends, on a machine that is busy.
const LIFETIME: SignedDuration = SignedDuration::from_secs(40);

fn token(cluster: &Cluster) -> Result<String> {
    cluster.node.run_in(NAME, "show", "cat /token/vault-token")
}

/// What the server says to whoever is shown a token and asks for these audiences.
fn review(cluster: &Cluster, token: &str, audiences: &[&str]) -> Result<Value> {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let place = "/apis/authentication.k8s.io/v1/tokenreviews";
    Ok(cluster.api.ask(Call::post(place, review))?["status"].clone())
}

/// Waits for a file with another token in it, which is valid.
fn wait_next(cluster: &Cluster, last: &str) -> Result<String> {
    let next = cluster.node.eventually("the next token", || {
        let token = token(cluster)?;
        ensure!(!token.is_empty() && token != last, "it is the last one");
        Ok(token)
    })?;
    let status = review(cluster, &next, &["vault"])?;
    ensure!(status["authenticated"] == true, "{status:#}");
    Ok(next)
}

#[test]
fn a_token_is_a_file_that_is_renewed_before_it_ends() -> Result<()> {
    let options = ApiOptions { token_lifetime_max: Some(LIFETIME), ..ApiOptions::default() };
    let mut cluster = Cluster::start_with(options, Value::Null)?;
    let uid = cluster.apply_example(NAME)?;
    cluster.wait_ready(NAME)?;
    cluster.node.wait_word(NAME, "show", "vault-token")?;
    let first = token(&cluster)?;
    let status = review(&cluster, &first, &["vault"])?;
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:default", "{status:#}");
    let of_pod = &status["user"]["extra"]["authentication.kubernetes.io/pod-uid"];
    assert_eq!(of_pod, &json!([uid]), "{status:#}");
    let status = review(&cluster, &first, &[])?;
    assert_ne!(status["authenticated"], true, "it is not for the server: {status:#}");
    let shown = "stat -f -c %T /token; stat -L -c %a /token/vault-token";
    assert_eq!(cluster.node.run_in(NAME, "show", shown)?, "tmpfs\n644\n");
    let second = wait_next(&cluster, &first)?;

    // Another life of the agent leaves a valid token there, and renews it, too.
    cluster.node.survive_kill()?;
    let found = token(&cluster)?;
    let status = review(&cluster, &found, &["vault"])?;
    ensure!(status["authenticated"] == true, "{status:#}");
    let next = wait_next(&cluster, &found)?;
    ensure!(next != second, "it is new");

    cluster.delete_pod(NAME, None)?;
    cluster.wait_no_trace(NAME, &uid)?;
    let status = review(&cluster, &next, &["vault"])?;
    assert_ne!(status["authenticated"], true, "its pod is gone: {status:#}");
    Ok(())
}
