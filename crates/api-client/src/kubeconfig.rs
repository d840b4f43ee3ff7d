//! From a kubeconfig file to the server it names and who asks. Pure.
//!
//! Reads nothing but its argument; files that it names stay names. Upstream:
//! client-go tools/clientcmd.

use std::path::{Path, PathBuf};

use kubelet_model::base64;
use kubelet_model::typed::{self, DoubledKeys};
use serde_json::{Value, json};

use crate::access::{Access, ExecPlugin, Pem, Token};

/// Versions of the talk with a program that knows credentials.
const EXEC_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const IMPERSONATION: &str = "use the credentials of that user";
/// Ways to log in that Kubernetes has given up, or that a node has no use for.
const GIVEN_UP: [(&str, &str); 7] = [
    ("as", IMPERSONATION),
    ("as-uid", IMPERSONATION),
    ("as-groups", IMPERSONATION),
    ("as-user-extra", IMPERSONATION),
    ("auth-provider", "use an exec plugin"),
    ("username", "use a token or a client certificate"),
    ("password", "use a token or a client certificate"),
];

/// Why a kubeconfig cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// It is no YAML.
    #[error("{0}")]
    Syntax(String),
    /// A part that is named is missing.
    #[error("there is no {kind} {name:?}")]
    Missing {
        /// What of.
        kind: &'static str,
        /// Which.
        name: String,
    },
    /// A field cannot be used.
    #[error("{field}: {why}")]
    Field {
        /// Which.
        field: String,
        /// Why not.
        why: String,
    },
}

impl Access {
    /// What a kubeconfig says that lies in a directory.
    ///
    /// # Errors
    /// The first thing that keeps it from being used.
    pub fn parse(text: &[u8], dir: &Path) -> Result<Self, KubeconfigError> {
        let file = typed::from_yaml(text, DoubledKeys::Refused).map_err(KubeconfigError::Syntax)?;
        let context = match text_of(&file, "", "current-context")? {
            Some(name) => named(&file, "contexts", "context", name)?,
            None => return Err(field("current-context", "must name a context")),
        };
        let of = |key: &'static str| {
            text_of(context, "context", key)?
                .ok_or_else(|| field(&format!("context.{key}"), "missing"))
        };
        let cluster = named(&file, "clusters", "cluster", of("cluster")?)?;
        let user = named(&file, "users", "user", of("user")?)?;
        let reader = Reader { dir };
        let mut access = reader.cluster(cluster)?;
        reader.user(user, cluster, &mut access)?;
        Ok(access)
    }
}

/// Reads the parts; relative paths begin where the file lies.
struct Reader<'a> {
    dir: &'a Path,
}

impl Reader<'_> {
    fn cluster(&self, cluster: &Value) -> Result<Access, KubeconfigError> {
        let text = |key| text_of(cluster, "cluster", key);
        let server = text("server")?.unwrap_or_default().trim_end_matches('/').to_owned();
        if !(server.starts_with("https://") || server.starts_with("http://")) {
            return Err(field("cluster.server", "must be a URL such as https://10.0.0.1:6443"));
        }
        if text("proxy-url")?.is_some() {
            return Err(field("cluster.proxy-url", "proxies are not supported; remove it"));
        }
        let insecure = cluster["insecure-skip-tls-verify"].as_bool().unwrap_or(false);
        let authority = self.pem(cluster, "cluster", "certificate-authority")?;
        if insecure && authority.is_some() {
            let why = "cannot be set with certificate-authority; remove one of them";
            return Err(field("cluster.insecure-skip-tls-verify", why));
        }
        let server_name = text("tls-server-name")?.map(str::to_owned);
        let (certificate, token, exec) = (None, None, None);
        Ok(Access { server, authority, server_name, insecure, certificate, token, exec })
    }

    fn user(
        &self,
        user: &Value,
        cluster: &Value,
        access: &mut Access,
    ) -> Result<(), KubeconfigError> {
        for (key, instead) in GIVEN_UP {
            if !user[key].is_null() {
                return Err(field(&format!("user.{key}"), format!("not supported; {instead}")));
            }
        }
        let certificate = self.pem(user, "user", "client-certificate")?;
        access.certificate = match (certificate, self.pem(user, "user", "client-key")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(field("user.client-key", "missing for the certificate")),
            (None, Some(_)) => return Err(field("user.client-certificate", "missing for the key")),
        };
        let file = text_of(user, "user", "tokenFile")?.map(|path| Token::File(self.path(path)));
        let inline = text_of(user, "user", "token")?.map(|text| Token::Inline(text.to_owned()));
        // As upstream: the file, if there is one.
        access.token = file.or(inline);
        access.exec = match &user["exec"] {
            Value::Null => None,
            exec => Some(self.exec(exec, cluster)?),
        };
        Ok(())
    }

    fn exec(&self, exec: &Value, cluster: &Value) -> Result<ExecPlugin, KubeconfigError> {
        let text = |key| text_of(exec, "user.exec", key);
        let required = |key: &'static str| {
            text(key)?.ok_or_else(|| field(&format!("user.exec.{key}"), "missing"))
        };
        let api_version = required("apiVersion")?;
        if !EXEC_VERSIONS.contains(&api_version) {
            let why = format!("{api_version:?} is not one of {}", EXEC_VERSIONS.join(", "));
            return Err(field("user.exec.apiVersion", why));
        }
        if text("interactiveMode")? == Some("Always") {
            let why = "nobody sits at a node to answer; use Never or IfAvailable";
            return Err(field("user.exec.interactiveMode", why));
        }
        let command = required("command")?;
        // A name alone is looked for in PATH; anything else lies where the file does.
        let command = if command.contains('/') { self.path(command) } else { command.into() };
        let strings = |value: &Value| value.as_str().map(str::to_owned);
        let args = exec["args"].as_array().into_iter().flatten().filter_map(strings).collect();
        let pair = |entry: &Value| Some((strings(&entry["name"])?, strings(&entry["value"])?));
        let env = exec["env"].as_array().into_iter().flatten().filter_map(pair).collect();
        let told = exec["provideClusterInfo"].as_bool().unwrap_or(false);
        Ok(ExecPlugin {
            command,
            args,
            env,
            api_version: api_version.to_owned(),
            install_hint: text("installHint")?.map(str::to_owned),
            cluster: told.then(|| {
                json!({
                    "server": cluster["server"],
                    "tls-server-name": cluster["tls-server-name"],
                    "insecure-skip-tls-verify": cluster["insecure-skip-tls-verify"],
                    "certificate-authority-data": cluster["certificate-authority-data"],
                })
            }),
        })
    }

    /// Bytes in the file, or the name of another: the bytes win, as upstream.
    fn pem(
        &self,
        part: &Value,
        name: &str,
        key: &'static str,
    ) -> Result<Option<Pem>, KubeconfigError> {
        let data = format!("{key}-data");
        if let Some(text) = text_of(part, name, &data)? {
            let bytes = base64::decode_padded(text);
            let bytes = bytes.ok_or_else(|| field(&format!("{name}.{data}"), "not base64"))?;
            return Ok(Some(Pem::Inline(bytes)));
        }
        Ok(text_of(part, name, key)?.map(|path| Pem::File(self.path(path))))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }
}

/// The part of a list that has a name.
fn named<'v>(
    file: &'v Value,
    list: &str,
    kind: &'static str,
    name: &str,
) -> Result<&'v Value, KubeconfigError> {
    let mut all = file[list].as_array().into_iter().flatten();
    let found = all.find(|entry| entry["name"] == name);
    let missing = || KubeconfigError::Missing { kind, name: name.to_owned() };
    found.map(|entry| &entry[kind]).ok_or_else(missing)
}

/// A field that is text, if it is there and not empty.
fn text_of<'v>(part: &'v Value, name: &str, key: &str) -> Result<Option<&'v str>, KubeconfigError> {
    match &part[key] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err(field(&format!("{name}.{key}"), "must be a string")),
    }
}

fn field(field: &str, why: impl Into<String>) -> KubeconfigError {
    KubeconfigError::Field { field: field.to_owned(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {cluster}}}]\n\
             users: [{{name: u, user: {user}}}]\n"
        )
    }

    fn parse(cluster: &str, user: &str) -> Result<Access, String> {
        let text = config(cluster, user);
        Access::parse(text.as_bytes(), Path::new("/etc/k")).map_err(|error| error.to_string())
    }

    const CLUSTER: &str = "{server: 'https://h:6443/', certificate-authority: ca.crt}";

    #[test]
    fn files_lie_beside_the_kubeconfig_and_data_wins() {
        let user = "{client-certificate: /a.pem, client-key: b.pem, client-key-data: a2V5}";
        let access = parse(CLUSTER, user).unwrap();
        assert_eq!(access.server, "https://h:6443");
        assert_eq!(access.authority, Some(Pem::File("/etc/k/ca.crt".into())));
        let key = Pem::Inline(b"key".to_vec());
        assert_eq!(access.certificate, Some((Pem::File("/a.pem".into()), key)));
        let token = parse(CLUSTER, "{token: t, tokenFile: f}").unwrap().token;
        assert_eq!(token, Some(Token::File("/etc/k/f".into())));
    }

    #[test]
    fn a_plugin_is_found_in_path_or_beside_the_file() {
        let exec = |more: &str| {
            let version = "apiVersion: client.authentication.k8s.io/v1";
            parse(CLUSTER, &format!("{{exec: {{{version}, {more}}}}}"))
        };
        let found = |more| exec(more).unwrap().exec.unwrap();
        assert_eq!(found("command: aws").command, Path::new("aws"));
        let plugin = found("command: ./aws, args: [x], env: [{name: A, value: b}]");
        assert_eq!(plugin.command, Path::new("/etc/k/./aws"));
        assert_eq!((plugin.args, plugin.env), (vec!["x".into()], vec![("A".into(), "b".into())]));
        let told = found("command: aws, provideClusterInfo: true").cluster.unwrap();
        assert_eq!(told["server"], "https://h:6443/");
        let error = exec("command: aws, interactiveMode: Always").unwrap_err();
        assert!(error.starts_with("user.exec.interactiveMode: "), "{error}");
    }

    #[test]
    fn mistakes_are_told_by_their_field() {
        for (cluster, user, says) in [
            ("{server: h}", "{}", "cluster.server: must be a URL"),
            ("{server: 7}", "{}", "cluster.server: must be a string"),
            ("{server: 'https://h', proxy-url: 'http://p'}", "{}", "cluster.proxy-url: "),
            (CLUSTER, "{client-key: k}", "user.client-certificate: missing"),
            (CLUSTER, "{client-certificate: k}", "user.client-key: missing"),
            (CLUSTER, "{client-certificate-data: '*'}", "user.client-certificate-data: not base64"),
            (CLUSTER, "{username: u}", "user.username: not supported"),
            (CLUSTER, "{token: t, as: other}", "user.as: not supported"),
            (CLUSTER, "{token: t, as-groups: [g]}", "user.as-groups: not supported"),
            (CLUSTER, "{auth-provider: {name: gcp}}", "user.auth-provider: not supported"),
            (CLUSTER, "{exec: {command: a}}", "user.exec.apiVersion: missing"),
            (CLUSTER, "{exec: {command: a, apiVersion: v7}}", "user.exec.apiVersion: \"v7\""),
        ] {
            let error = parse(cluster, user).unwrap_err();
            assert!(error.starts_with(says), "{error} is not {says}");
        }
        let insecure = "{server: 'https://h', insecure-skip-tls-verify: true";
        assert!(parse(&format!("{insecure}}}"), "{}").unwrap().insecure);
        assert!(parse(&format!("{insecure}, certificate-authority: a}}"), "{}").is_err());
        let other = config(CLUSTER, "{}").replace("user: u}", "user: x}");
        let error = Access::parse(other.as_bytes(), Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "there is no user \"x\"");
    }

    #[test]
    fn secrets_are_never_printed() {
        let user = "{token: hunter2, client-certificate-data: aHVudGVy, client-key-data: aHVudGVy}";
        let printed = format!("{:?}", parse(CLUSTER, user).unwrap());
        assert!(!printed.contains("hunter") && !printed.contains("104, 117"), "{printed}");
    }
}
