//! The user that a client certificate names: common name and organisations.
//!
//! Pure. TLS has checked the certificate against the client CA before.
//! Upstream: apiserver pkg/authentication/request/x509.

use x509_parser::prelude::{FromDer, X509Certificate};

use super::User;

/// A certificate that names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is not a certificate.
    #[error("the client certificate cannot be read: {0}")]
    Unreadable(String),
    /// It has no common name.
    #[error("the client certificate has no common name, so it names no user")]
    Nameless,
}

/// The user whom a certificate names.
///
/// # Errors
/// [`CertificateError`].
pub fn certificate_user(der: &[u8]) -> Result<User, CertificateError> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().find_map(|name| name.as_str().ok());
    let name = name.filter(|name| !name.is_empty()).ok_or(CertificateError::Nameless)?;
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    Ok(User::new(name, groups).authenticated())
}
