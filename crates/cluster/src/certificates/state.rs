//! How a certificate stands, for those who ask why. Pure data.

use std::sync::Arc;

use jiff::Timestamp;

use super::plan::Means;
use super::request::Kind;
use super::store::Pair;

/// Characters of an error that are kept: a server may say anything.
const ERROR_CHARS_MAX: usize = 1024;

/// How a certificate stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// The newest; it may have expired.
    pub pair: Option<Arc<Pair>>,
    /// When it is renewed.
    pub renew_at: Option<Timestamp>,
    /// The request that waits to be approved and signed.
    pub asked: Option<Asked>,
    /// Why the last attempt to get one failed, and when; none once one succeeded.
    pub trouble: Option<(Timestamp, String)>,
    /// Attempts that failed since the agent started.
    pub renew_errors: u64,
    /// It had expired, and other credentials were needed to get another.
    pub fallback: Option<Fallback>,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
    /// With which credentials it was made.
    pub means: Means,
}

/// A certificate had expired. Told until the next one was renewed in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallback {
    /// When it had.
    pub expired: Timestamp,
    /// When `--bootstrap-kubeconfig` got another.
    pub obtained: Option<Timestamp>,
}

impl CertificateState {
    /// A certificate that can be used now.
    pub fn usable(&self, now: Timestamp) -> Option<&Arc<Pair>> {
        self.pair.as_ref().filter(|pair| !pair.leaf.is_expired(now))
    }

    /// Seconds until it expires; none if there is none.
    pub fn seconds_left(&self, now: Timestamp) -> Option<i64> {
        let left = |pair: &Arc<Pair>| pair.leaf.not_after.as_second() - now.as_second();
        self.pair.as_ref().map(left)
    }

    /// What users of the node should know, though it works.
    pub fn warning(&self) -> Option<String> {
        let Fallback { expired, obtained } = self.fallback?;
        let obtained = obtained?;
        Some(format!(
            "the client certificate expired at {expired} before it was renewed; another was \
             obtained at {} with --bootstrap-kubeconfig",
            second(obtained)
        ))
    }

    /// Why there is no certificate to be used, or `None` if there is one.
    pub fn lack(&self, kind: Kind, now: Timestamp) -> Option<String> {
        if self.usable(now).is_some() {
            return None;
        }
        let name = name(kind);
        let state = match (&self.pair, self.fallback) {
            (Some(pair), _) => format!("the {name} expired at {}", pair.leaf.not_after),
            (None, Some(Fallback { expired, .. })) => format!("the {name} expired at {expired}"),
            (None, None) => format!("the node has no {name} yet"),
        };
        let then = match (&self.asked, &self.trouble) {
            (Some(asked), _) => asked.words(),
            (None, Some((at, why))) => format!("asking for one failed at {}: {why}", second(*at)),
            (None, None) => "one is about to be asked for".to_owned(),
        };
        Some(format!("{state}; {then}"))
    }

    /// How it stands, in a line or two for people.
    pub fn lines(&self, kind: Kind, now: Timestamp) -> Vec<String> {
        let mut lines = Vec::new();
        match (self.lack(kind, now), &self.pair) {
            (Some(lack), _) => lines.push(capital(&lack) + "."),
            (None, Some(pair)) => {
                let next = self.renew_at.map(|at| format!(", renewed at about {}", second(at)));
                let until = pair.leaf.not_after;
                let line = format!(
                    "the {} is good until {until}{}.",
                    name(kind),
                    next.unwrap_or_default()
                );
                lines.push(capital(&line));
                lines.extend(self.asked.as_ref().map(|asked| capital(&asked.words()) + "."));
                lines.extend(self.trouble.as_ref().map(|(at, why)| {
                    format!("Its renewal failed at {} and is tried again: {why}.", second(*at))
                }));
            }
            (None, None) => {}
        }
        lines.extend(self.warning().map(|warning| capital(&warning) + "."));
        lines
    }

    pub(super) fn fails(&mut self, at: Timestamp, why: &str) {
        self.asked = None;
        self.renew_errors = self.renew_errors.saturating_add(1);
        self.trouble = Some((at, why.chars().take(ERROR_CHARS_MAX).collect()));
    }
}

impl Asked {
    fn words(&self) -> String {
        let Self { name, since, means } = self;
        format!(
            "it was asked for at {} with {} and waits to be approved and signed: `kubectl get csr \
             {name}`, `kubectl certificate approve {name}`",
            second(*since),
            means.words()
        )
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Client => "client certificate",
        Kind::Serving => "serving certificate",
    }
}

/// Of times, people want the second.
fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::test_parts::{issued, minute};

    #[test]
    fn how_it_stands_in_words() {
        let pair = |to| {
            let made = issued("a", &[], 0, to);
            Some(Arc::new(Pair::new(made.certificate, made.key).unwrap()))
        };
        let asked = Some(Asked { name: "csr-1".into(), since: minute(3), means: Means::Bootstrap });
        let trouble = Some((minute(4), "no".to_owned()));
        let expired = minute(1);
        let new = CertificateState::default();
        let states = [
            new.clone(),
            CertificateState { asked: asked.clone(), ..new.clone() },
            CertificateState { trouble: trouble.clone(), ..new.clone() },
            CertificateState { pair: pair(5), ..new.clone() },
            CertificateState { pair: pair(90), renew_at: Some(minute(80)), ..new.clone() },
            CertificateState { pair: pair(90), trouble, asked, ..new.clone() },
            CertificateState {
                fallback: Some(Fallback { expired, obtained: None }),
                ..new.clone()
            },
            CertificateState {
                pair: pair(90),
                fallback: Some(Fallback { expired, obtained: Some(minute(2)) }),
                ..new
            },
        ];
        let lines: Vec<String> =
            states.iter().map(|state| state.lines(Kind::Client, minute(10)).join("\n")).collect();
        expect_test::expect![[r#"
            The node has no client certificate yet; one is about to be asked for.
            The node has no client certificate yet; it was asked for at 2026-01-01T00:03:00Z with --bootstrap-kubeconfig and waits to be approved and signed: `kubectl get csr csr-1`, `kubectl certificate approve csr-1`.
            The node has no client certificate yet; asking for one failed at 2026-01-01T00:04:00Z: no.
            The client certificate expired at 2026-01-01T00:05:00Z; one is about to be asked for.
            The client certificate is good until 2026-01-01T01:30:00Z, renewed at about 2026-01-01T01:20:00Z.
            The client certificate is good until 2026-01-01T01:30:00Z.
            It was asked for at 2026-01-01T00:03:00Z with --bootstrap-kubeconfig and waits to be approved and signed: `kubectl get csr csr-1`, `kubectl certificate approve csr-1`.
            Its renewal failed at 2026-01-01T00:04:00Z and is tried again: no.
            The client certificate expired at 2026-01-01T00:01:00Z; one is about to be asked for.
            The client certificate is good until 2026-01-01T01:30:00Z.
            The client certificate expired at 2026-01-01T00:01:00Z before it was renewed; another was obtained at 2026-01-01T00:02:00Z with --bootstrap-kubeconfig."#]]
        .assert_eq(&lines.join("\n"));
        assert_eq!(states[4].seconds_left(minute(10)), Some(80 * 60));
        assert_eq!(states[3].seconds_left(minute(10)), Some(-5 * 60));
        assert_eq!(states[0].seconds_left(minute(10)), None);
    }
}
