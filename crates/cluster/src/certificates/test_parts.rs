//! Certificates for tests, by minutes of the first day of 2026.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use api_client::Identity;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::parse::Leaf;

const DAY: i64 = 1_767_225_600;

pub(super) fn minute(minute: i64) -> Timestamp {
    Timestamp::from_second(DAY + 60 * minute).unwrap()
}

pub(super) fn last(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (at(from), at(to));
}

pub(super) fn leaf(from: i64, to: i64) -> Leaf {
    Leaf {
        not_before: minute(from),
        not_after: minute(to),
        common_name: "system:node:n1".into(),
        organizations: BTreeSet::from(["system:nodes".into()]),
        dns_names: BTreeSet::new(),
        addresses: BTreeSet::new(),
    }
}

/// A certificate of a user that lasts from a minute to another.
pub(super) fn issued(user: &str, names: &[&str], from: i64, to: i64) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, user);
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        });
    }
    last(&mut params, minute(from), minute(to));
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    Identity { certificate: made.pem().into_bytes(), key: key.serialize_pem().into_bytes() }
}
