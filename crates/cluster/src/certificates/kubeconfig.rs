//! The kubeconfig that points at a node's certificate, as upstream writes it.
//!
//! Upstream: pkg/kubelet/certificate/bootstrap (writeKubeconfigFromBootstrapping),
//! client-go tools/clientcmd.

use std::fmt::Write as _;
use std::path::Path;

use api_client::{Access, Pem};
use kubelet_model::base64;

use super::store::{StoreError, write_private};

/// Writes a kubeconfig that reaches the same server with the certificate of a file.
///
/// # Errors
/// [`StoreError`].
pub fn write_kubeconfig(path: &Path, server: &Access, pem: &Path) -> Result<(), StoreError> {
    write_private(path, text(server, pem).as_bytes())
}

fn text(server: &Access, pem: &Path) -> String {
    let mut cluster = String::new();
    let mut field = |key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(cluster, "    {key}: {value}");
    };
    match &server.authority {
        Some(Pem::Inline(bytes)) => field("certificate-authority-data", &base64::encode(bytes)),
        Some(Pem::File(path)) => field("certificate-authority", &quoted(&path.to_string_lossy())),
        None => {}
    }
    if server.insecure {
        field("insecure-skip-tls-verify", "true");
    }
    field("server", &quoted(&server.server));
    if let Some(name) = &server.server_name {
        field("tls-server-name", &quoted(name));
    }
    let pem = quoted(&pem.to_string_lossy());
    format!(
        "apiVersion: v1
clusters:
- cluster:
{cluster}  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: {pem}
    client-key: {pem}
"
    )
}

/// Plain if YAML takes it as it is, else in quotes.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/:._-".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = starts && text.chars().all(plain) && !text.ends_with(':');
    if plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(cluster: &str) -> Access {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {cluster}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
        );
        Access::parse(text.as_bytes(), Path::new("/etc")).unwrap()
    }

    #[test]
    fn it_reaches_the_same_server_with_the_certificate() {
        let given = server("{server: 'https://h:6443', certificate-authority-data: Y2E=}");
        let written = text(&given, Path::new("/pki/kubelet-client-current.pem"));
        expect_test::expect![[r#"
            apiVersion: v1
            clusters:
            - cluster:
                certificate-authority-data: Y2E=
                server: https://h:6443
              name: default-cluster
            contexts:
            - context:
                cluster: default-cluster
                namespace: default
                user: default-auth
              name: default-context
            current-context: default-context
            kind: Config
            users:
            - name: default-auth
              user:
                client-certificate: /pki/kubelet-client-current.pem
                client-key: /pki/kubelet-client-current.pem
        "#]]
        .assert_eq(&written);
        let odd = "{server: 'https://[::1]:6443', certificate-authority: 'a b: #.crt', \
                   tls-server-name: '1.2.3.4', insecure-skip-tls-verify: false}";
        for cluster in [odd, "{server: 'http://h', insecure-skip-tls-verify: true}"] {
            let given = server(cluster);
            let written = text(&given, Path::new("/p k/x.pem"));
            let read = Access::parse(written.as_bytes(), Path::new("/")).unwrap();
            let pem = || Pem::File("/p k/x.pem".into());
            let expected =
                Access { certificate: Some((pem(), pem())), ..given.clone().anonymous() };
            assert_eq!(read, expected);
        }
    }
}
