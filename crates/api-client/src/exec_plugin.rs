//! Runs a program that knows credentials.
//!
//! It is asked without a shell, within a minute, and what it prints is bounded. What it
//! prints to its error output becomes part of the error, never what it answers.
//! Upstream: client-go plugin/pkg/client/auth/exec.

use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::access::ExecPlugin;
use crate::tls::Identity;

/// Time it may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a complaint that are kept.
const COMPLAINT_BYTES_MAX: u64 = 1 << 10;
/// Where the program reads what it is asked.
const QUESTION: &str = "KUBERNETES_EXEC_INFO";

/// What a program gave.
pub(crate) struct Given {
    pub token: Option<String>,
    pub identity: Option<Identity>,
    /// When it has to be asked again.
    pub until: Option<Timestamp>,
}

/// Asks a program.
pub(crate) async fn ask(plugin: &ExecPlugin) -> Result<Given, String> {
    let name = plugin.command.display();
    let mut question = json!({"apiVersion": plugin.api_version, "kind": "ExecCredential",
        "spec": {"interactive": false}});
    if let Some(cluster) = &plugin.cluster {
        question["spec"]["cluster"] = cluster.clone();
    }
    let child = Command::new(&plugin.command)
        .args(&plugin.args)
        .envs(plugin.env.iter().map(|(name, value)| (name, value)))
        .env(QUESTION, question.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| {
        let hint = plugin.install_hint.as_deref().unwrap_or("install it on this node");
        format!("credential plugin {name} cannot be run: {error}; {hint}")
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let both = tokio::join!(all(stdout, ANSWER_BYTES_MAX), all(stderr, COMPLAINT_BYTES_MAX));
        child.wait().await.map(|status| (status, both))
    };
    let ended = timeout(LIMIT, work).await;
    let ended = ended.map_err(|_| format!("credential plugin {name}: no answer in a minute"))?;
    let (status, (answer, complaint)) =
        ended.map_err(|error| format!("credential plugin {name}: {error}"))?;
    if !status.success() {
        let complaint = String::from_utf8_lossy(&complaint);
        return Err(format!("credential plugin {name} failed ({status}): {}", complaint.trim()));
    }
    given(&answer, &plugin.api_version).map_err(|why| format!("credential plugin {name}: {why}"))
}

/// All that is written, up to a limit; the rest is read and forgotten.
async fn all(from: Option<impl AsyncRead + Unpin>, limit: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut from) = from else { return kept };
    // A program that breaks off has said what it has said.
    let _ = (&mut from).take(limit).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    kept
}

/// What an answer gives. It is never part of an error: it holds secrets.
fn given(answer: &[u8], version: &str) -> Result<Given, String> {
    let answer: Value =
        serde_json::from_slice(answer).map_err(|_| "its answer is no JSON".to_owned())?;
    if answer["kind"] != "ExecCredential" || answer["apiVersion"] != version {
        return Err(format!("its answer is no ExecCredential of {version}"));
    }
    let text = |key: &str| {
        answer["status"][key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let identity = match (text("clientCertificateData"), text("clientKeyData")) {
        (Some(certificate), Some(key)) => {
            Some(Identity { certificate: certificate.into_bytes(), key: key.into_bytes() })
        }
        (None, None) => None,
        _ => return Err("it gave a certificate without its key, or the reverse".to_owned()),
    };
    let token = text("token");
    if token.is_none() && identity.is_none() {
        return Err("it gave neither a token nor a certificate".to_owned());
    }
    let until = text("expirationTimestamp").map(|text| text.parse());
    let until = until.transpose().map_err(|_| "its expirationTimestamp is no time".to_owned())?;
    Ok(Given { token, identity, until })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn plugin(script: &str) -> ExecPlugin {
        ExecPlugin {
            command: PathBuf::from("sh"),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("WORD".to_owned(), "t0ken".to_owned())],
            api_version: V1.to_owned(),
            install_hint: Some("apt install it".to_owned()),
            cluster: Some(json!({"server": "https://h"})),
        }
    }

    #[tokio::test]
    async fn a_program_is_asked_and_answers() {
        let script = format!(
            r#"printf '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"%s",
               "expirationTimestamp":"2030-01-02T03:04:05Z"}}}}' "$WORD-$(printf '%s' \
               "$KUBERNETES_EXEC_INFO" | grep -c https://h)""#
        );
        let given = ask(&plugin(&script)).await.unwrap();
        assert_eq!(given.token.as_deref(), Some("t0ken-1"));
        assert_eq!(given.until, Some("2030-01-02T03:04:05Z".parse().unwrap()));
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_without_the_answer() {
        for (script, says) in [
            ("echo secret; echo no luck >&2; exit 3", "failed (exit status: 3): no luck"),
            ("echo secret", "its answer is no JSON"),
            ("echo '{}'", "no ExecCredential of"),
        ] {
            let error = ask(&plugin(script)).await.err().unwrap();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
        let missing = ExecPlugin { command: "/nowhere/x".into(), ..plugin("") };
        let error = ask(&missing).await.err().unwrap();
        assert!(error.contains("/nowhere/x cannot be run") && error.ends_with("apt install it"));
        let empty = json!({"apiVersion": V1, "kind": "ExecCredential", "status": {}});
        assert!(given(empty.to_string().as_bytes(), V1).is_err());
    }
}
