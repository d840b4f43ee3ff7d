//! The user that a client certificate names. Pure.
//!
//! Upstream: apiserver pkg/authentication/request/x509.

use ring::digest;
use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::User;

/// The key under which the certificate itself is named.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// Kubernetes' own attribute for the uid of a user.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The user whom a certificate names; none if it has no common name.
pub(super) fn user(der: &[u8]) -> Result<Option<User>, String> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| format!("cannot be read: {error}"))?;
    let subject = certificate.subject();
    // The last one counts, as in Go.
    let name = subject.iter_common_name().last().and_then(|name| name.as_str().ok());
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
    let mut groups = Vec::new();
    for group in subject.iter_organization() {
        let group = group.as_str().map_err(|error| format!("has an odd organization: {error}"))?;
        groups.push(group.to_owned());
    }
    let mut uid = None;
    for found in subject.iter_by_oid(&UID) {
        let found = found.as_str().map_err(|error| format!("has an odd uid: {error}"))?;
        if found.is_empty() || uid.replace(found.to_owned()).is_some() {
            return Err("must have one uid, or none".to_owned());
        }
    }
    let mut id = "X509SHA256=".to_owned();
    for byte in digest::digest(&digest::SHA256, der).as_ref() {
        id.push_str(&format!("{byte:02x}"));
    }
    let extra = vec![(CREDENTIAL_ID.to_owned(), vec![id])];
    Ok(Some(User { name: name.to_owned(), uid: uid.unwrap_or_default(), groups, extra }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn made(entries: &[(DnType, &str)]) -> Result<Option<User>, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in entries {
            let value = DnValue::Utf8String((*value).to_owned());
            params.distinguished_name.push(kind.clone(), value);
        }
        let key = KeyPair::generate().unwrap();
        user(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn names_groups_and_uids() {
        let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        let found = made(&[
            (DnType::CommonName, "jane"),
            (DnType::OrganizationName, "devs"),
            (uid.clone(), "u-1"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("jane", "u-1"));
        assert_eq!(found.groups, ["devs"]);
        assert!(found.extra[0].1[0].starts_with("X509SHA256=") && found.extra[0].1[0].len() == 75);
        assert_eq!(made(&[(DnType::OrganizationName, "devs")]), Ok(None));
        assert!(made(&[(DnType::CommonName, "a"), (uid, "")]).is_err());
        assert!(user(b"nothing").is_err());
    }
}
