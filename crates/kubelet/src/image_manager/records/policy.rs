//! Whether a pod may use an image that is here already, or must pull it to
//! show that its credentials are good.
//!
//! Pure. Upstream: MustAttemptImagePull and image_pull_policies.go in
//! pkg/kubelet/images/pullmanager.

use super::format::{PullCredentials, PullSecret, PullServiceAccount, PulledRecord};
use crate::image_manager::reference;

/// A record stops growing while it is only read: one image, many secrets.
const SECRETS_MAX: usize = 100;

/// Which images that are here already are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// None.
    Never,
    /// Those a kubelet has pulled, not those that came with the machine.
    NotPreloaded,
    /// All but those that fit one of these patterns: a name without tag, or a
    /// prefix followed by `/*`.
    NotAllowlisted(Vec<String>),
    /// All.
    Always,
}

impl Verification {
    /// Reads the configuration's words, which validation has checked.
    pub fn named(policy: &str, allowlist: &[String]) -> Option<Self> {
        match policy {
            "NeverVerify" => Some(Self::Never),
            "NeverVerifyPreloadedImages" => Some(Self::NotPreloaded),
            "NeverVerifyAllowlistedImages" => Some(Self::NotAllowlisted(allowlist.to_vec())),
            "AlwaysVerify" => Some(Self::Always),
            _ => None,
        }
    }

    fn requires(&self, image: &str, pulled_by_kubelet: bool) -> bool {
        match self {
            Self::Never => false,
            Self::NotPreloaded => pulled_by_kubelet,
            Self::NotAllowlisted(patterns) => {
                let name = name_of(image);
                !patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(prefix) => name.starts_with(prefix),
                    None => name == *pattern,
                })
            }
            Self::Always => true,
        }
    }
}

/// The name under which a record lists an image; a text that is no reference
/// is its own name.
pub fn name_of(image: &str) -> String {
    reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.name)
}

/// What the pod could pull with, besides what every pod of the node can.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodCredentials {
    /// Its secrets.
    pub secrets: Vec<PullSecret>,
    /// Its service account, if a credential provider made a login from it.
    pub service_account: Option<PullServiceAccount>,
}

/// May the pod use the image?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may: nobody asks.
    Unchecked,
    /// It may.
    Use,
    /// It may, and this secret is to be remembered.
    UseAndRecord(PullSecret),
    /// It must pull.
    Pull,
}

/// Decides. `pulled_by_kubelet`: there is a record or an intent.
pub fn decide(
    verification: &Verification,
    image: &str,
    pulled_by_kubelet: bool,
    record: Option<&PulledRecord>,
    pod: &PodCredentials,
) -> Verdict {
    if !verification.requires(image, pulled_by_kubelet) {
        return Verdict::Unchecked;
    }
    let known = record.and_then(|record| record.credential_mapping.get(&name_of(image)));
    match known {
        None => Verdict::Pull,
        Some(known) if known.node_pods_accessible => Verdict::Use,
        Some(known) => decide_by_credentials(known, pod),
    }
}

fn decide_by_credentials(known: &PullCredentials, pod: &PodCredentials) -> Verdict {
    let room = known.kubernetes_secrets.len() < SECRETS_MAX;
    for own in &pod.secrets {
        for old in &known.kubernetes_secrets {
            let same_content =
                !old.credential_hash.is_empty() && old.credential_hash == own.credential_hash;
            match (same_content, old.is_same(own)) {
                (true, true) => return Verdict::Use,
                (true, false) if !room => return Verdict::Use,
                // Known content under a new name, or new content under a known name.
                (true, false) => return Verdict::UseAndRecord(own.clone()),
                (false, true) if room => return Verdict::UseAndRecord(own.clone()),
                (false, _) => {}
            }
        }
    }
    match &pod.service_account {
        Some(own) if known.kubernetes_service_accounts.contains(own) => Verdict::Use,
        _ => Verdict::Pull,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn secret(name: &str, hash: &str) -> PullSecret {
        PullSecret {
            uid: name.to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            credential_hash: hash.to_owned(),
        }
    }

    fn account(name: &str) -> PullServiceAccount {
        PullServiceAccount { uid: name.into(), namespace: "default".into(), name: name.into() }
    }

    fn record(known: PullCredentials) -> PulledRecord {
        let mut record = PulledRecord::new("ref", Timestamp::UNIX_EPOCH);
        record.credential_mapping.insert("r.io/x".to_owned(), known);
        record
    }

    fn with_secrets(secrets: Vec<PullSecret>) -> PulledRecord {
        record(PullCredentials { kubernetes_secrets: secrets, ..Default::default() })
    }

    #[test]
    fn the_policy_says_which_images_are_checked() {
        let none = PodCredentials::default();
        let verdict = |policy: &Verification, image: &str, pulled| {
            decide(policy, image, pulled, None, &none) == Verdict::Unchecked
        };
        let listed = ["r.io/x".to_owned(), "q.io/team/*".to_owned()];
        let named = |name: &str| Verification::named(name, &listed).unwrap();
        for (policy, image, unpulled_may, pulled_may) in [
            ("NeverVerify", "r.io/x:1", true, true),
            ("NeverVerifyPreloadedImages", "r.io/x:1", true, false),
            ("AlwaysVerify", "r.io/x:1", false, false),
            ("NeverVerifyAllowlistedImages", "r.io/x:1", true, true),
            ("NeverVerifyAllowlistedImages", "r.io/xy:1", false, false),
            ("NeverVerifyAllowlistedImages", "q.io/team/a/b:1", true, true),
            ("NeverVerifyAllowlistedImages", "q.io/teams/a:1", false, false),
        ] {
            assert_eq!(verdict(&named(policy), image, false), unpulled_may, "{policy} {image}");
            assert_eq!(verdict(&named(policy), image, true), pulled_may, "{policy} {image}");
        }
        assert_eq!(Verification::named("Sometimes", &[]), None);
    }

    #[track_caller]
    fn check(record: &PulledRecord, image: &str, pod: PodCredentials, want: Verdict) {
        assert_eq!(decide(&Verification::NotPreloaded, image, true, Some(record), &pod), want);
    }

    #[test]
    fn the_record_says_who_may_use_the_image() {
        let nobody = PodCredentials::default;
        let own = |secret: PullSecret| PodCredentials { secrets: vec![secret], ..nobody() };
        let anyone = record(PullCredentials::node_wide());
        check(&anyone, "r.io/x:2", nobody(), Verdict::Use);
        check(&anyone, "r.io/other:2", nobody(), Verdict::Pull);
        check(&record(PullCredentials::default()), "r.io/x", nobody(), Verdict::Pull);

        let known = with_secrets(vec![secret("a", "h")]);
        check(&known, "r.io/x", nobody(), Verdict::Pull);
        check(&known, "r.io/x", own(secret("a", "h")), Verdict::Use);
        let renamed = secret("b", "h");
        check(&known, "r.io/x", own(renamed.clone()), Verdict::UseAndRecord(renamed));
        let changed = secret("a", "new");
        check(&known, "r.io/x", own(changed.clone()), Verdict::UseAndRecord(changed));
        check(&known, "r.io/x", own(secret("b", "new")), Verdict::Pull);
        // A hash that could not be made matches nothing.
        check(&with_secrets(vec![secret("a", "")]), "r.io/x", own(secret("b", "")), Verdict::Pull);
    }

    #[test]
    fn a_full_record_grows_no_more() {
        let full =
            with_secrets((0..100).map(|n| secret(&format!("s{n}"), &format!("h{n}"))).collect());
        let own =
            |secret: PullSecret| PodCredentials { secrets: vec![secret], ..Default::default() };
        check(&full, "r.io/x", own(secret("new", "h7")), Verdict::Use);
        check(&full, "r.io/x", own(secret("s7", "changed")), Verdict::Pull);
    }

    #[test]
    fn a_service_account_may_use_what_it_pulled() {
        let known = record(PullCredentials {
            kubernetes_service_accounts: vec![account("a")],
            ..Default::default()
        });
        let own =
            |name| PodCredentials { service_account: Some(account(name)), ..Default::default() };
        check(&known, "r.io/x", own("a"), Verdict::Use);
        check(&known, "r.io/x", own("b"), Verdict::Pull);
    }
}
