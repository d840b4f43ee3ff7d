//! Who a token belongs to.
//!
//! Owns the static tokens and the issuer of service account tokens. Reads the
//! store: a token ends with the account, pod, secret or node it is bound to.
//! Upstream: apiserver pkg/authentication/token, pkg/serviceaccount/claims.go.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::User;
use super::jwt::{Bound, Claims, TokenError, TokenIssuer, subject};
use crate::json;
use crate::store::{Key, Store};

/// A token that is known by heart.
#[derive(Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The token.
    pub token: String,
    /// Whose it is.
    pub user: User,
}

impl std::fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticToken").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Whose a token is, and for which of the asked-for audiences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// The user.
    pub user: User,
    /// Audiences that were asked for and that it is for.
    pub audiences: Vec<String>,
}

/// Authenticates tokens.
#[derive(Debug)]
pub struct Authenticator {
    /// Signs and checks service account tokens.
    pub issuer: TokenIssuer,
    tokens: Vec<StaticToken>,
    store: Arc<Store>,
}

impl Authenticator {
    /// An authenticator of these tokens and those of the issuer.
    pub fn new(issuer: TokenIssuer, tokens: Vec<StaticToken>, store: Arc<Store>) -> Self {
        Self { issuer, tokens, store }
    }

    /// Whose token this is. No audiences means this server.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<TokenUser, TokenError> {
        let own = [self.issuer.issuer.clone()];
        let audiences = if audiences.is_empty() { &own } else { audiences };
        if let Some(known) = self.tokens.iter().find(|known| same(&known.token, token)) {
            let audiences = audiences.iter().filter(|a| own.contains(a)).cloned().collect();
            return Ok(TokenUser { user: known.user.clone().authenticated(), audiences });
        }
        let claims = self.issuer.check(token, now)?;
        let shared: Vec<String> = audiences
            .iter()
            .filter(|audience| claims.audiences.contains(audience))
            .cloned()
            .collect();
        if shared.is_empty() {
            return Err(TokenError::Audience(claims.audiences));
        }
        self.check_bound(&claims)?;
        Ok(TokenUser { user: user(&claims), audiences: shared })
    }

    fn check_bound(&self, claims: &Claims) -> Result<(), TokenError> {
        let namespace = claims.namespace.as_str();
        let account = Some(&claims.account);
        for (what, plural, namespace, bound) in [
            ("service account", "serviceaccounts", namespace, account),
            ("pod", "pods", namespace, claims.pod.as_ref()),
            ("secret", "secrets", namespace, claims.secret.as_ref()),
        ] {
            if bound.is_some_and(|bound| !self.exists(plural, namespace, bound)) {
                return Err(TokenError::Gone(what));
            }
        }
        // The node of a pod's token is for information; the pod goes with its node.
        match &claims.node {
            Some(node) if claims.pod.is_none() && !self.exists("nodes", "", node) => {
                Err(TokenError::Gone("node"))
            }
            _ => Ok(()),
        }
    }

    fn exists(&self, plural: &str, namespace: &str, bound: &Bound) -> bool {
        let key = Key {
            resource: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: bound.name.clone(),
        };
        let stored = self.store.get(&key);
        stored.is_some_and(|stored| json::text(&stored.value(), "metadata.uid") == bound.uid)
    }
}

/// Compares without telling by its duration how much of a token was right.
fn same(known: &str, given: &str) -> bool {
    known.len() == given.len()
        && known.bytes().zip(given.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn user(claims: &Claims) -> User {
    let mut extra = BTreeMap::new();
    let mut tell = |key: &str, value: &str| {
        extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
    };
    tell("credential-id", &format!("JTI={}", claims.id));
    for (kind, bound) in [("pod", &claims.pod), ("node", &claims.node)] {
        if let Some(bound) = bound {
            tell(&format!("{kind}-name"), &bound.name);
            tell(&format!("{kind}-uid"), &bound.uid);
        }
    }
    User {
        name: subject(&claims.namespace, &claims.account.name),
        uid: claims.account.uid.clone(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", claims.namespace),
        ],
        extra,
    }
    .authenticated()
}
