//! Adds to a record what another pull has shown.
//!
//! Pure. Upstream: pulledRecordMergeNewCreds in pkg/kubelet/images/pullmanager.

use jiff::Timestamp;

use super::format::{PullCredentials, PulledRecord, whole_seconds};

/// The record with the credentials added; `None` if that changes nothing.
pub fn merge(
    record: &PulledRecord,
    name: &str,
    new: &PullCredentials,
    now: Timestamp,
) -> Option<PulledRecord> {
    if *new == PullCredentials::default() {
        return None;
    }
    let merged = match record.credential_mapping.get(name) {
        None => new.clone(),
        Some(old) if old.node_pods_accessible => return None,
        Some(_) if new.node_pods_accessible => PullCredentials::node_wide(),
        Some(old) => add(old, new),
    };
    if record.credential_mapping.get(name) == Some(&merged) {
        return None;
    }
    let mut record = record.clone();
    record.credential_mapping.insert(name.to_owned(), merged);
    record.last_updated_time = whole_seconds(now);
    Some(record)
}

fn add(old: &PullCredentials, new: &PullCredentials) -> PullCredentials {
    let mut all = old.clone();
    for secret in &new.kubernetes_secrets {
        if old.kubernetes_secrets.contains(secret) {
            continue;
        }
        all.kubernetes_secrets.retain(|known| !known.is_same(secret));
        all.kubernetes_secrets.push(secret.clone());
        all.kubernetes_secrets
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
    }
    for account in &new.kubernetes_service_accounts {
        if !old.kubernetes_service_accounts.contains(account) {
            all.kubernetes_service_accounts.push(account.clone());
            all.kubernetes_service_accounts.sort_by(|a, b| {
                (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid))
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::format::PullSecret;
    use super::*;

    fn secrets(list: &[(&str, &str)]) -> PullCredentials {
        let secret = |(name, hash): &(&str, &str)| PullSecret {
            uid: "u".into(),
            namespace: "ns".into(),
            name: (*name).into(),
            credential_hash: (*hash).into(),
        };
        PullCredentials {
            kubernetes_secrets: list.iter().map(secret).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn credentials_add_up() {
        let now = Timestamp::from_second(100).unwrap();
        let empty = PulledRecord::new("ref", Timestamp::UNIX_EPOCH);
        assert_eq!(merge(&empty, "x", &PullCredentials::default(), now), None);
        let one = merge(&empty, "x", &secrets(&[("b", "1")]), now).unwrap();
        assert_eq!(
            (one.credential_mapping["x"].clone(), one.last_updated_time),
            (secrets(&[("b", "1")]), now)
        );
        assert_eq!(merge(&one, "x", &secrets(&[("b", "1")]), now), None);
        let two = merge(&one, "x", &secrets(&[("a", "2")]), now).unwrap();
        assert_eq!(two.credential_mapping["x"], secrets(&[("a", "2"), ("b", "1")]));
        let changed = merge(&two, "x", &secrets(&[("b", "9")]), now).unwrap();
        assert_eq!(changed.credential_mapping["x"], secrets(&[("a", "2"), ("b", "9")]));
        let open = merge(&changed, "x", &PullCredentials::node_wide(), now).unwrap();
        assert_eq!(open.credential_mapping["x"], PullCredentials::node_wide());
        assert_eq!(merge(&open, "x", &secrets(&[("b", "1")]), now), None);
        let other = merge(&open, "y", &secrets(&[("b", "1")]), now).unwrap();
        assert_eq!(other.credential_mapping.len(), 2);
    }
}
