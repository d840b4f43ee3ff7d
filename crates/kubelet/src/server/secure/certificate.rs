//! The serving certificate and the authority of clients, from files.
//!
//! Without files a certificate is made, self-signed, and kept, so that it stays the
//! same over restarts; unless the cluster signs it, which is not this module's affair. Upstream: initializeServerTLS in cmd/kubelet/app/server.go.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use node_server::{PemError, Tls};
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};

use super::{SecureError, SecureSettings};
use crate::ports::Fs;

/// Bytes of a file that are read.
const PEM_MAX: usize = 1 << 20;
/// How long a certificate lasts that is made here, as upstream's.
const DAYS: i64 = 365;
/// Names of what is made here, as upstream's.
const CERTIFICATE: &str = "kubelet.crt";
const KEY: &str = "kubelet.key";

/// A certificate that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// None can be made.
    #[error("cannot make a serving certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The files, and what was last read from them.
pub(super) struct Files {
    tls: Arc<Tls>,
    /// Certificate and key; none if somebody else keeps them.
    serving: Option<(PathBuf, PathBuf)>,
    given: bool,
    client_ca: Option<PathBuf>,
    seen: (Vec<u8>, Vec<u8>),
    seen_ca: Vec<u8>,
    told: String,
}

impl Files {
    pub(super) fn new(settings: &SecureSettings, tls: Arc<Tls>) -> Self {
        let dir = &settings.cert_dir;
        let own = || (dir.join(CERTIFICATE), dir.join(KEY));
        Self {
            tls,
            given: settings.files.is_some(),
            serving: (!settings.signed).then(|| settings.files.clone().unwrap_or_else(own)),
            client_ca: settings.client_ca.clone(),
            seen: Default::default(),
            seen_ca: Vec::new(),
            told: String::new(),
        }
    }

    /// Reads everything for the first time; makes a certificate if none was given.
    pub(super) fn load(
        &mut self,
        fs: &dyn Fs,
        node_name: &str,
        now: Timestamp,
    ) -> Result<(), SecureError> {
        if !self.given {
            self.make(fs, node_name, now)?;
        }
        self.read(fs)
    }

    /// Reads everything again; what cannot be used leaves all as it was.
    pub(super) fn reload(&mut self, fs: &dyn Fs) {
        match self.read(fs) {
            Ok(()) => self.told.clear(),
            Err(error) => {
                let text = error.to_string();
                if text != self.told {
                    tracing::error!(
                        error = text,
                        "certificates not read again; the old ones serve on"
                    );
                    self.told = text;
                }
            }
        }
    }

    /// One that cannot be read does not keep the other from being read.
    fn read(&mut self, fs: &dyn Fs) -> Result<(), SecureError> {
        let serving = self.read_serving(fs);
        self.read_authority(fs).and(serving)
    }

    fn read_serving(&mut self, fs: &dyn Fs) -> Result<(), SecureError> {
        let Some((certificate, key)) = &self.serving else { return Ok(()) };
        let (certificate, key) = (pem(fs, certificate)?, pem(fs, key)?);
        if (&certificate, &key) != (&self.seen.0, &self.seen.1) {
            self.tls.serving().set(&certificate, &key)?;
            self.seen = (certificate, key);
        }
        Ok(())
    }

    fn read_authority(&mut self, fs: &dyn Fs) -> Result<(), SecureError> {
        if let Some(path) = &self.client_ca {
            let authority = pem(fs, path)?;
            if authority != self.seen_ca {
                self.tls.set_client_authority(Some(&authority))?;
                self.seen_ca = authority;
            }
        }
        Ok(())
    }

    /// Makes a certificate, unless one is there that can be used.
    fn make(&self, fs: &dyn Fs, node_name: &str, now: Timestamp) -> Result<(), CertificateError> {
        let Some((certificate, key)) = &self.serving else { return Ok(()) };
        let old = |path: &Path| fs.read(path, PEM_MAX);
        if let (Ok(certificate), Ok(key)) = (old(certificate), old(key)) {
            let usable: Result<(), PemError> = self.tls.serving().set(&certificate, &key);
            if usable.is_ok() {
                return Ok(());
            }
        }
        let (made, secret) = self_signed(node_name, now)?;
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::File { what, path, source }
        };
        let dir = key.parent().unwrap_or(Path::new("/"));
        fs.create_dir_all(dir, 0o755).map_err(fail("create", dir))?;
        fs.write(key, secret.as_bytes()).map_err(fail("write", key))?;
        fs.write(certificate, made.as_bytes()).map_err(fail("write", certificate))?;
        tracing::info!(path = %certificate.display(), "made a self-signed serving certificate");
        Ok(())
    }
}

fn pem(fs: &dyn Fs, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let read = fs.read(path, PEM_MAX).and_then(|bytes| match bytes.is_empty() {
        true => Err(std::io::Error::new(ErrorKind::InvalidData, "it is empty")),
        false => Ok(bytes),
    });
    read.map_err(|source| CertificateError::File { what: "read", path: path.to_owned(), source })
}

/// A certificate of this node, and its key.
fn self_signed(node_name: &str, now: Timestamp) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, format!("{node_name}@{}", now.as_second()));
    params.subject_alt_names = vec![match node_name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(node_name.try_into()?),
    }];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let day = |at: Timestamp| {
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    let days = |count: i64| SignedDuration::from_hours(24 * count);
    params.not_before = day(now.checked_sub(days(1)).unwrap_or(now));
    params.not_after = day(now.checked_add(days(DAYS)).unwrap_or(now));
    let made = params.self_signed(&key)?;
    Ok((made.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::RealFs;
    use node_server::TlsOptions;

    fn files(dir: &Path) -> Files {
        let tls = Arc::new(Tls::new(&TlsOptions::default()).unwrap());
        Files {
            tls,
            serving: Some((dir.join("pki").join(CERTIFICATE), dir.join("pki").join(KEY))),
            given: false,
            client_ca: Some(dir.join("ca.crt")),
            seen: Default::default(),
            seen_ca: Vec::new(),
            told: String::new(),
        }
    }

    #[test]
    fn a_certificate_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (ca, _) = self_signed("ca", Timestamp::now()).unwrap();
        std::fs::write(dir.path().join("ca.crt"), &ca).unwrap();
        files(dir.path()).load(&RealFs, "n1", Timestamp::now()).unwrap();
        let path = dir.path().join("pki").join(CERTIFICATE);
        let first = std::fs::read(&path).unwrap();
        files(dir.path()).load(&RealFs, "n1", Timestamp::now()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        // One that is of no use is replaced.
        std::fs::write(&path, "odd").unwrap();
        files(dir.path()).load(&RealFs, "n1", Timestamp::now()).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), first);
    }

    #[test]
    fn bad_files_leave_the_old_ones_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let (ca, _) = self_signed("ca", Timestamp::now()).unwrap();
        let at = dir.path().join("ca.crt");
        std::fs::write(&at, &ca).unwrap();
        let mut all = files(dir.path());
        all.load(&RealFs, "10.0.0.1", Timestamp::now()).unwrap();
        for bad in ["", "odd"] {
            std::fs::write(&at, bad).unwrap();
            all.reload(&RealFs);
            assert!(!all.told.is_empty() && all.tls.serving().is_set(), "{bad:?}");
        }
        std::fs::write(&at, &ca).unwrap();
        all.reload(&RealFs);
        assert_eq!(all.told, "");
        // A serving certificate that is broken does not keep a new authority out.
        let (other, _) = self_signed("other", Timestamp::now()).unwrap();
        std::fs::write(&at, &other).unwrap();
        std::fs::write(&all.serving.as_ref().unwrap().1, "odd").unwrap();
        all.reload(&RealFs);
        assert!(!all.told.is_empty());
        assert_eq!(all.seen_ca, other.as_bytes());
        std::fs::remove_file(&at).unwrap();
        let error = files(dir.path()).load(&RealFs, "n1", Timestamp::now()).unwrap_err();
        assert!(error.to_string().contains("ca.crt"), "{error}");
    }
}
