//! What is said to a credential provider and what it answers.
//!
//! Plain data; answers hold secrets and are never quoted in errors. Upstream:
//! staging/src/k8s.io/kubelet/pkg/apis/credentialprovider.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_config::go_duration::GoDuration;
use serde::Deserialize;

use crate::image_manager::keyring::{Login, Logins};

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not the JSON it should be.
    #[error("its answer is no CredentialProviderResponse: line {line}, column {column}")]
    Json {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// Another kind or version than asked for.
    #[error("it answered {found}, not {wanted}")]
    Version {
        /// What it answered.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// It does not say what its answer is good for.
    #[error("its answer's cacheKeyType is {0:?}; it must be Image, Registry or Global")]
    CacheKeyType(String),
}

/// What an answer is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This repository.
    Image,
    /// This registry.
    Registry,
    /// Everything.
    Global,
}

/// A provider's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Logins by registry.
    pub logins: Logins,
    /// What for.
    pub scope: Scope,
    /// How long, if it says so.
    pub cache_for: Option<Duration>,
}

/// The question, as the provider reads it.
pub fn question(api_version: &str, image: &str) -> Vec<u8> {
    let question = serde_json::json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": api_version,
        "image": image,
    });
    format!("{question}\n").into_bytes()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Response {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<GoDuration>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Reads an answer.
pub fn answer(api_version: &str, output: &[u8]) -> Result<Answer, AnswerError> {
    let response: Response = serde_json::from_slice(output)
        .map_err(|error| AnswerError::Json { line: error.line(), column: error.column() })?;
    let found = format!("{} {}", response.api_version, response.kind);
    let wanted = format!("{api_version} CredentialProviderResponse");
    if found != wanted {
        return Err(AnswerError::Version { found, wanted });
    }
    let scope = match response.cache_key_type.as_str() {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        other => return Err(AnswerError::CacheKeyType(other.to_owned())),
    };
    let login = |auth: Auth| Login { username: auth.username, password: auth.password };
    let logins = response.auth.unwrap_or_default().into_iter().map(|(k, a)| (k, login(a)));
    Ok(Answer {
        logins: logins.collect(),
        scope,
        cache_for: response.cache_duration.map(GoDuration::to_std),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn text(kind: &str, rest: &str) -> String {
        format!(r#"{{"kind":"{kind}","apiVersion":"{V1}",{rest}}}"#)
    }

    #[test]
    fn question_and_answer() {
        let asked: serde_json::Value = serde_json::from_slice(&question(V1, "r.io/x")).unwrap();
        assert_eq!(asked["image"], "r.io/x");
        assert_eq!(asked["apiVersion"], V1);
        let good = text(
            "CredentialProviderResponse",
            r#""cacheKeyType":"Registry","cacheDuration":"5m","auth":{"r.io":{"username":"u","password":"p"}}"#,
        );
        let answer = answer(V1, good.as_bytes()).unwrap();
        assert_eq!(answer.scope, Scope::Registry);
        assert_eq!(answer.cache_for, Some(Duration::from_secs(300)));
        assert_eq!(answer.logins["r.io"].username, "u");
    }

    #[test]
    fn a_bad_answer_is_refused_and_not_quoted() {
        let response = "CredentialProviderResponse";
        for bad in [
            text(response, r#""cacheKeyType":"s3cret-no""#).replace("s3cret-no", "Moon"),
            text("Pod", r#""cacheKeyType":"Image""#),
            text(response, r#""cacheKeyType":"Image","auth":{"r.io":"s3cret"}"#),
            "s3cret".to_owned(),
        ] {
            let error = answer(V1, bad.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        let other = text(response, r#""cacheKeyType":"Image""#).replace("/v1", "/v1beta1");
        assert!(matches!(answer(V1, other.as_bytes()), Err(AnswerError::Version { .. })));
    }
}
