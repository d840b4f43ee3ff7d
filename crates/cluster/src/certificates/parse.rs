//! What a certificate says: from when to when, of whom, for which names. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::X509Name;

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// It is of no use before.
    pub not_before: Timestamp,
    /// Nor after.
    pub not_after: Timestamp,
    /// Whose it is.
    pub common_name: String,
    /// To which groups they belong.
    pub organizations: BTreeSet<String>,
    /// Names of the server.
    pub dns_names: BTreeSet<String>,
    /// Addresses of the server.
    pub addresses: BTreeSet<IpAddr>,
}

impl Leaf {
    /// What the first certificate in a text says.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let mut blocks = blocks(pem)?;
        if blocks.is_empty() {
            return Err("there is no certificate in PEM".to_owned());
        }
        let first = blocks.swap_remove(0);
        let certificate = read(&first)?;
        let (common_name, organizations) = subject(certificate.subject());
        let (mut dns_names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        let names = certificate.subject_alternative_name();
        let names = names.map_err(|error| format!("its names cannot be read: {error}"))?;
        for name in names.iter().flat_map(|names| &names.value.general_names) {
            match name {
                GeneralName::DNSName(name) => drop(dns_names.insert((*name).to_owned())),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        let validity = certificate.validity();
        let (not_before, not_after) = (time(validity.not_before)?, time(validity.not_after)?);
        Ok(Self { not_before, not_after, common_name, organizations, dns_names, addresses })
    }

    /// Whether it is too old.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }
}

/// When the first of the certificates in a text expires.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn first_expiry(pem: &[u8]) -> Result<Timestamp, String> {
    let mut first = None;
    for block in blocks(pem)? {
        let expires = time(read(&block)?.validity().not_after)?;
        first = Some(first.map_or(expires, |known: Timestamp| known.min(expires)));
    }
    first.ok_or_else(|| "there is no certificate in PEM".to_owned())
}

/// Who a name is of: common name and organisations.
pub(super) fn subject(name: &X509Name<'_>) -> (String, BTreeSet<String>) {
    let own = name.iter_common_name().find_map(|part| part.as_str().ok());
    let groups = name.iter_organization().filter_map(|part| part.as_str().ok());
    (own.unwrap_or_default().to_owned(), groups.map(str::to_owned).collect())
}

fn blocks(pem: &[u8]) -> Result<Vec<Pem>, String> {
    let mut found = Vec::new();
    for block in Pem::iter_from_buffer(pem) {
        let block = block.map_err(|error| format!("it is no PEM: {error}"))?;
        if block.label == "CERTIFICATE" {
            found.push(block);
        }
    }
    Ok(found)
}

fn read(block: &Pem) -> Result<X509Certificate<'_>, String> {
    let read = X509Certificate::from_der(&block.contents);
    read.map(|(_, read)| read).map_err(|error| format!("a certificate cannot be read: {error}"))
}

fn time(at: ASN1Time) -> Result<Timestamp, String> {
    Timestamp::from_second(at.timestamp()).map_err(|error| error.to_string())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::test_parts::{issued, minute};

    #[test]
    fn a_certificate_says_whose_it_is_and_how_long() {
        let pair = issued("system:node:n1", &["n1", "10.0.0.1", "fd00::1"], 3, 90);
        let leaf = Leaf::parse(&pair.certificate).unwrap();
        assert_eq!((leaf.not_before, leaf.not_after), (minute(3), minute(90)));
        assert_eq!(leaf.common_name, "system:node:n1");
        assert!(leaf.organizations.iter().eq(["system:nodes"]));
        assert!(leaf.dns_names.iter().eq(["n1"]));
        let addresses: Vec<String> = leaf.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
        assert!(!leaf.is_expired(minute(90)) && leaf.is_expired(minute(91)));
    }

    #[test]
    fn of_many_the_first_to_expire_counts() {
        let (long, short) = (issued("a", &[], 0, 90), issued("b", &[], 0, 30));
        let both = [long.certificate.clone(), short.certificate, long.key].concat();
        assert_eq!(first_expiry(&both), Ok(minute(30)));
        assert_eq!(Leaf::parse(&both).unwrap().not_after, minute(90));
        for odd in ["", "odd", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(first_expiry(odd.as_bytes()).is_err() && Leaf::parse(odd.as_bytes()).is_err());
        }
    }
}
