//! The certificate authority.
//!
//! Owns its key. Signs certificates of servers, of clients and of requests.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};

/// How long the authority itself lasts.
const AUTHORITY_DAYS: i64 = 3650;
/// How long certificates last that it makes for itself.
const OWN_DAYS: i64 = 365;
/// Certificates are valid from a little before now, for clocks that are behind; short ones
/// from less.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Why something was not signed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The library refused.
    #[error("cannot make or sign a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// No randomness for a serial number.
    #[error("the system has no randomness for a serial number")]
    Random,
}

/// A certificate with its key, both in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The key, in PKCS #8.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn generate(name: &str, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        last(&mut params, now, SignedDuration::from_hours(24 * AUTHORITY_DAYS))?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    /// An authority from its certificate and key, both in PEM.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key)?)?;
        Ok(Self { pem: certificate.to_owned(), issuer })
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Its key, in PEM: for another that is to sign in its name.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate of a server with these names and addresses.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn server(
        &self,
        name: &str,
        names: &[String],
        now: Timestamp,
    ) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        self.issue(params, name, None, now)
    }

    /// A certificate of a client: a user and at most one group.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn client(
        &self,
        user: &str,
        group: Option<&str>,
        now: Timestamp,
    ) -> Result<Issued, AuthorityError> {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, user, group, now)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        name: &str,
        group: Option<&str>,
        now: Timestamp,
    ) -> Result<Issued, AuthorityError> {
        params.distinguished_name.remove(DnType::CommonName);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        last(&mut params, now, SignedDuration::from_hours(24 * OWN_DAYS))?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }

    /// Signs a request that has been checked, for these usages and this long.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(super) fn sign(
        &self,
        request: &str,
        usages: (Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>),
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        let mut request = CertificateSigningRequestParams::from_pem(request)?;
        (request.params.key_usages, request.params.extended_key_usages) = usages;
        request.params.is_ca = IsCa::ExplicitNoCa;
        request.params.use_authority_key_identifier_extension = true;
        last(&mut request.params, now, lifetime)?;
        Ok(request.signed_by(&self.issuer)?.pem())
    }
}

/// Sets from when to when, and a serial number that nobody can guess.
fn last(
    params: &mut CertificateParams,
    now: Timestamp,
    lifetime: SignedDuration,
) -> Result<(), AuthorityError> {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    params.not_before = at(now.saturating_sub(BACKDATE.min(lifetime / 10)).unwrap_or(now));
    params.not_after = at(now.saturating_add(lifetime).unwrap_or(now));
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| AuthorityError::Random)?;
    // Positive, and not zero.
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}
