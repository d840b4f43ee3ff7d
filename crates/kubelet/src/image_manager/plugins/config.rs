//! The configuration of credential providers: reading, merging, checking.
//!
//! Owns nothing. Reads files at start; a mistake in them keeps the agent from
//! starting. Upstream: pkg/credentialprovider/plugin/config.go.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_config::go_duration::GoDuration;
use kubelet_model::typed::{self, DoubledKeys};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::Provider;
use crate::ports::{Fs, Programs};

/// Largest file read.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Versions of the configuration.
const CONFIG_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
/// Versions of the talk with a provider; tokens need the first.
const PROVIDER_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// Why credential providers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProviderConfigError {
    /// Only one of the two flags is set.
    #[error(
        "--image-credential-provider-config and --image-credential-provider-bin-dir need each \
         other; set both or neither"
    )]
    HalfConfigured,
    /// A file or directory cannot be read.
    #[error("credential providers: cannot read {}: {source}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory without configuration.
    #[error("credential providers: {} has no file ending in .json, .yaml or .yml", .0.display())]
    NoFiles(PathBuf),
    /// A file that says nothing sensible.
    #[error("credential providers: {}: {why}", .path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The configuration breaks rules.
    #[error("credential providers: {}", .0.join("; "))]
    Invalid(Vec<String>),
    /// A provider's program is missing.
    #[error("credential provider {name}: cannot run {}: {source}; install it there", .path.display())]
    Program {
        /// Which provider.
        name: String,
        /// Its program.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Wire>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    token_attributes: Option<TokenAttributes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenAttributes {
    #[serde(default)]
    service_account_token_audience: String,
    #[serde(default)]
    cache_type: String,
    require_service_account: Option<bool>,
    #[serde(default)]
    required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    optional_service_account_annotation_keys: Vec<String>,
}

/// The providers that are configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    /// In the order of configuration.
    pub providers: Vec<Provider>,
    /// Hash of the files, by which upstream tells configurations apart.
    pub hash: String,
}

/// Reads and checks the configuration at `path`, a file or a directory of
/// files, and looks for each provider's program in `programs_dir`.
pub fn load(
    fs: &dyn Fs,
    programs: &dyn Programs,
    path: &Path,
    programs_dir: &Path,
) -> Result<Configured, ProviderConfigError> {
    let mut wire = Vec::new();
    let mut hasher = Sha256::new();
    for file in files(fs, path)? {
        let content = fs
            .read(&file, FILE_BYTES_MAX)
            .map_err(|source| ProviderConfigError::Read { path: file.clone(), source })?;
        // The length first, so that no two sets of files look alike.
        hasher.update(u64::try_from(content.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(&content);
        let document =
            parse(&content).map_err(|why| ProviderConfigError::Content { path: file, why })?;
        wire.extend(document.providers);
    }
    let problems = check(&wire);
    if !problems.is_empty() {
        return Err(ProviderConfigError::Invalid(problems));
    }
    let locate = |wire: Wire| {
        let program = programs_dir.join(&wire.name);
        match programs.check(&program) {
            Ok(()) => Ok(wire.provider(program)),
            Err(source) => {
                Err(ProviderConfigError::Program { name: wire.name, path: program, source })
            }
        }
    };
    let providers = wire.into_iter().map(locate).collect::<Result<_, _>>()?;
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Configured { providers, hash: format!("sha256:{hex}") })
}

fn files(fs: &dyn Fs, path: &Path) -> Result<Vec<PathBuf>, ProviderConfigError> {
    let unreadable = |source| ProviderConfigError::Read { path: path.to_owned(), source };
    if !fs.stat(path).map_err(unreadable)?.is_dir {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs.list(path).map_err(unreadable)?;
    let fits = |file: &PathBuf| {
        let ending = file.extension().and_then(|ending| ending.to_str());
        matches!(ending, Some("json" | "yaml" | "yml"))
    };
    let all = entries.into_iter().filter(|entry| !entry.is_dir);
    let files: Vec<PathBuf> = all.map(|entry| path.join(entry.name)).filter(fits).collect();
    if files.is_empty() { Err(ProviderConfigError::NoFiles(path.to_owned())) } else { Ok(files) }
}

fn parse(content: &[u8]) -> Result<Document, String> {
    let value = typed::from_yaml(content, DoubledKeys::Refused)?;
    let document: Document =
        typed::decode(value, &mut |_| {}).map_err(|error| error.to_string())?;
    if document.kind != "CredentialProviderConfig" {
        return Err(format!("its kind is {:?}, not CredentialProviderConfig", document.kind));
    }
    if !CONFIG_VERSIONS.contains(&document.api_version.as_str()) {
        let known = CONFIG_VERSIONS.join(", ");
        return Err(format!("its apiVersion is {:?}; use one of {known}", document.api_version));
    }
    Ok(document)
}

/// Everything that is wrong.
fn check(providers: &[Wire]) -> Vec<String> {
    if providers.is_empty() {
        return vec!["providers: at least one is needed".to_owned()];
    }
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for provider in providers {
        let mut bad = |field: &str, why: String| {
            problems.push(format!("provider {:?}: {field}: {why}", provider.name));
        };
        if !names.insert(&provider.name) {
            bad("name", "another provider has it too".to_owned());
        }
        let name = provider.name.as_str();
        if matches!(name, "" | "." | "..") || name.contains(['/', ' ', '\0']) {
            bad("name", "must be the name of a program, without directory or spaces".to_owned());
        }
        if !PROVIDER_VERSIONS.contains(&provider.api_version.as_str()) {
            bad("apiVersion", format!("must be one of {}", PROVIDER_VERSIONS.join(", ")));
        }
        if provider.match_images.is_empty() {
            bad("matchImages", "at least one is needed".to_owned());
        }
        for pattern in provider.match_images.iter().filter(|pattern| !is_pattern(pattern)) {
            bad("matchImages", format!("{pattern:?} is no host with an optional path"));
        }
        match provider.default_cache_duration {
            None => bad("defaultCacheDuration", "is needed".to_owned()),
            Some(time) if time.is_negative() => {
                bad("defaultCacheDuration", format!("{time} must not be negative"));
            }
            Some(_) => {}
        }
        if let Some(token) = &provider.token_attributes {
            check_token(provider, token, &mut bad);
        }
    }
    problems
}

fn is_pattern(pattern: &str) -> bool {
    !pattern.is_empty()
        && !pattern.contains(|c: char| c.is_whitespace() || c.is_control())
        && !pattern.contains("://")
}

fn check_token(provider: &Wire, token: &TokenAttributes, bad: &mut impl FnMut(&str, String)) {
    if provider.api_version != PROVIDER_VERSIONS[0] {
        bad("tokenAttributes", format!("need apiVersion {}", PROVIDER_VERSIONS[0]));
    }
    if token.service_account_token_audience.is_empty() {
        bad("tokenAttributes.serviceAccountTokenAudience", "is needed".to_owned());
    }
    if !matches!(token.cache_type.as_str(), "ServiceAccount" | "Token") {
        bad("tokenAttributes.cacheType", "must be ServiceAccount or Token".to_owned());
    }
    let (required, optional) = (
        &token.required_service_account_annotation_keys,
        &token.optional_service_account_annotation_keys,
    );
    match token.require_service_account {
        None => bad("tokenAttributes.requireServiceAccount", "is needed".to_owned()),
        Some(false) if !required.is_empty() => bad(
            "tokenAttributes.requiredServiceAccountAnnotationKeys",
            "need requireServiceAccount: true".to_owned(),
        ),
        Some(_) => {}
    }
    let mut seen = BTreeSet::new();
    for key in required.iter().chain(optional) {
        if key.is_empty() || !seen.insert(key) {
            bad("tokenAttributes", format!("the annotation key {key:?} is empty or named twice"));
        }
    }
}

impl Wire {
    fn provider(self, program: PathBuf) -> Provider {
        let cache_for = self.default_cache_duration.map_or(Duration::ZERO, GoDuration::to_std);
        Provider {
            name: self.name,
            program,
            match_images: self.match_images,
            cache_for,
            api_version: self.api_version,
            arguments: self.args,
            environment: self.env.into_iter().map(|v| (v.name, v.value)).collect(),
            requires_service_account: self
                .token_attributes
                .map(|token| token.require_service_account.unwrap_or(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{RealFs, RealPrograms};

    const GOOD: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: sh
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ['*.r.io']
  defaultCacheDuration: 1m30s
  args: [a]
  env: [{name: NAME, value: v}]
";

    fn load_text(files: &[(&str, &str)], bin: &str) -> Result<Configured, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        load(&RealFs, &RealPrograms, dir.path(), Path::new(bin)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_file_is_taken() {
        let Configured { providers, hash } =
            load_text(&[("b.yaml", GOOD), ("README", "x")], "/bin").unwrap();
        let hex = hash.strip_prefix("sha256:").unwrap();
        assert!(hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
        let commented = format!("{GOOD}# more");
        assert_ne!(load_text(&[("b.yaml", &commented)], "/bin").unwrap().hash, hash);
        let provider = &providers[0];
        assert_eq!(provider.program, Path::new("/bin/sh"));
        assert_eq!(provider.cache_for, Duration::from_secs(90));
        assert_eq!(provider.environment, [("NAME".to_owned(), "v".to_owned())]);
        assert_eq!(provider.requires_service_account, None);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let twice = load_text(&[("a.yaml", GOOD), ("b.yaml", GOOD)], "/bin").unwrap_err();
        assert!(twice.contains("provider \"sh\": name: another provider has it too"), "{twice}");
        let missing = load_text(&[("a.yaml", GOOD)], "/nowhere").unwrap_err();
        assert!(missing.contains("cannot run /nowhere/sh"), "{missing}");
        assert!(load_text(&[("a.txt", GOOD)], "/bin").unwrap_err().contains("has no file ending"));
        for (from, to, says) in [
            ("kind: Cred", "kind: Bred", "not CredentialProviderConfig"),
            ("k8s.io/v1\nkind", "k8s.io/v7\nkind", "its apiVersion is"),
            ("args", "argz", "argz"),
            ("- name: sh", "- name: ../sh", "must be the name of a program"),
            ("['*.r.io']", "[]", "matchImages: at least one"),
            ("['*.r.io']", "['https://r.io']", "is no host"),
            ("1m30s", "-1s", "must not be negative"),
            ("  defaultCacheDuration: 1m30s\n", "", "defaultCacheDuration: is needed"),
            ("credentialprovider.kubelet.k8s.io/v1", "x/v1", "apiVersion: must be one of"),
            ("args: [a]", "tokenAttributes: {}", "requireServiceAccount: is needed"),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let error = load_text(&[("a.yaml", &text)], "/bin").unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
