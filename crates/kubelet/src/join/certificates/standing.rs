//! Which credentials the node begins with: reads the kubeconfigs, writes nothing.
//!
//! Upstream: pkg/kubelet/certificate/bootstrap (isClientConfigStillValid).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use api_client::{Access, Identity, Pem};
use cluster::certificates::first_expiry;
use cluster::certificates::plan::{self, Begin, Standing};
use jiff::Timestamp;

use super::super::config::{self, JoinError};

/// What the node asks its API server with.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// How the node begins.
    pub begin: Begin,
    /// The server, and unless certificates are asked for who asks.
    pub access: Access,
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap: Option<PathBuf>,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
    /// When the certificate expired that `--kubeconfig` names, if it has.
    pub lapsed: Option<Timestamp>,
}

/// What the node begins with, by what its files hold now.
///
/// # Errors
/// A kubeconfig that is needed cannot be used.
pub fn credentials(
    kubeconfig: &Path,
    bootstrap: Option<&Path>,
    cert_dir: &Path,
    rotates: bool,
    now: Timestamp,
) -> Result<Credentials, JoinError> {
    let standing = match bootstrap {
        Some(_) => standing(kubeconfig, now)?,
        None => Standing::Good,
    };
    let begin = plan::begin(rotates, bootstrap.is_some(), &standing);
    let access = match (begin, bootstrap) {
        (Begin::BootstrapOnce | Begin::BootstrapRenewing, Some(path)) => {
            tracing::info!(?standing, "--kubeconfig cannot be used; a certificate is asked for");
            config::access("bootstrap-kubeconfig", path)?
        }
        _ => config::access("kubeconfig", kubeconfig)?,
    };
    let lapsed = match standing {
        Standing::Expired(at) => Some(at),
        _ => None,
    };
    Ok(Credentials {
        begin,
        access,
        kubeconfig: kubeconfig.to_owned(),
        bootstrap: bootstrap.map(Path::to_owned),
        cert_dir: cert_dir.to_owned(),
        lapsed,
    })
}

/// How a kubeconfig stands that could be replaced.
fn standing(path: &Path, now: Timestamp) -> Result<Standing, JoinError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Absent),
        _ => {}
    }
    let access = match config::access("kubeconfig", path) {
        Ok(access) => access,
        Err(JoinError::Unusable { source, .. }) => {
            return Ok(Standing::Unusable(source.to_string()));
        }
        Err(error) => return Err(error),
    };
    Ok(match of_certificate(&access) {
        Ok(expiry) if expiry < now => Standing::Expired(expiry),
        Ok(_) => Standing::Good,
        Err(why) => Standing::Unusable(why),
    })
}

/// When the certificate expires that a kubeconfig names.
pub(super) fn of_certificate(access: &Access) -> Result<Timestamp, String> {
    let Some((certificate, key)) = &access.certificate else {
        return Err("it names no client certificate".to_owned());
    };
    let identity = Identity { certificate: read(certificate)?, key: read(key)? };
    let expiry = first_expiry(&identity.certificate)?;
    identity.check().map(|()| expiry)
}

fn read(pem: &Pem) -> Result<Vec<u8>, String> {
    match pem {
        Pem::Inline(bytes) => Ok(bytes.clone()),
        Pem::File(path) => {
            std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apiserver::certificates::Authority;
    use apiserver::serve::{Credentials as Shown, kubeconfig};
    use jiff::SignedDuration;

    use super::*;

    /// `kubeconfig` as it lies there, then how a node begins that renews its certificate,
    /// and one that does not.
    #[test]
    fn files_decide_how_a_node_begins() {
        let now = Timestamp::now();
        let old = now.checked_sub(SignedDuration::from_hours(24 * 400)).unwrap();
        let authority = Arc::new(Authority::generate("ca", old).unwrap());
        let client = |at| authority.client("system:node:n1", Some("system:nodes"), at).unwrap();
        let text = |shown: &Shown| kubeconfig("https://h:6443", authority.pem(), shown);
        let good = text(&Shown::Certificate(client(now)));
        let mixed = apiserver::certificates::Issued {
            certificate: client(now).certificate,
            key: client(now).key,
        };
        let table = [
            (None, [Begin::BootstrapRenewing, Begin::BootstrapOnce], false),
            (Some("odd".to_owned()), [Begin::BootstrapRenewing, Begin::BootstrapOnce], false),
            (Some(good), [Begin::Renewing, Begin::AsGiven], false),
            (
                Some(text(&Shown::Certificate(client(old)))),
                [Begin::BootstrapRenewing, Begin::BootstrapOnce],
                true,
            ),
            (
                Some(text(&Shown::Certificate(mixed))),
                [Begin::BootstrapRenewing, Begin::BootstrapOnce],
                false,
            ),
            // As upstream: what names no certificate is replaced.
            (
                Some(text(&Shown::Token("t".into()))),
                [Begin::BootstrapRenewing, Begin::BootstrapOnce],
                false,
            ),
        ];
        for (index, (there, expected, lapsed)) in table.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let (path, bootstrap) = (dir.path().join("k"), dir.path().join("b"));
            std::fs::write(&bootstrap, text(&Shown::Token("secret".into()))).unwrap();
            if let Some(there) = &there {
                std::fs::write(&path, there).unwrap();
            }
            for (rotates, expected) in [(true, expected[0]), (false, expected[1])] {
                let found = credentials(&path, Some(&bootstrap), dir.path(), rotates, now).unwrap();
                assert_eq!((found.begin, found.lapsed.is_some()), (expected, lapsed), "{index}");
            }
            // Without a bootstrap it must be usable as it is.
            let found = credentials(&path, None, dir.path(), true, now);
            assert_eq!(found.is_ok(), there.is_some_and(|text| text != "odd"), "{index}");
        }
    }
}
