//! Tokens of service accounts: signed JSON with an end.
//!
//! Pure but for the randomness of signatures: the time is an argument. Owns the
//! signing key. Never looks whether what a token names still exists.
//! Upstream: pkg/serviceaccount (jwt.go, claims.go).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use serde_json::{Value, json};

use crate::json;

/// Longest token that is looked at; larger ones cannot be ours.
const TOKEN_MAX: usize = 16 * 1024;
/// Clocks of clients may be this far behind.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Why a token was not issued or is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No key could be made or used.
    #[error("the key that signs tokens cannot be used: {0}")]
    Key(String),
    /// It is not one of ours.
    #[error("the token is not one of this server's")]
    Foreign,
    /// Its signature is not ours.
    #[error("the signature of the token is wrong")]
    Signature,
    /// Its time is over, or has not come.
    #[error("the token is not valid at this time")]
    Time,
    /// It is meant for others.
    #[error("the token is for {0:?}, which is not asked for here")]
    Audience(Vec<String>),
    /// What it is bound to is gone.
    #[error("the {0} that the token is bound to is gone")]
    Gone(&'static str),
}

/// An object that a token names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl Bound {
    fn read(claims: &Value, field: &str) -> Option<Self> {
        let object = claims["kubernetes.io"].get(field)?;
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        Some(Self { name: text("name"), uid: text("uid") })
    }

    fn write(&self) -> Value {
        json!({"name": self.name, "uid": self.uid})
    }
}

/// What a token says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims {
    /// Id of the token.
    pub id: String,
    /// Namespace of the account.
    pub namespace: String,
    /// The account.
    pub account: Bound,
    /// Pod it is bound to.
    pub pod: Option<Bound>,
    /// Secret it is bound to.
    pub secret: Option<Bound>,
    /// Node it is bound to, or on which its pod is.
    pub node: Option<Bound>,
    /// For whom it is.
    pub audiences: Vec<String>,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
}

/// Signs and checks tokens.
#[derive(Debug)]
pub struct TokenIssuer {
    key: EcdsaKeyPair,
    key_id: String,
    /// Name of the issuer; also the audience that means this server.
    pub issuer: String,
    /// Whoever asks for a token that lasts longer gets one that lasts so long. Upstream:
    /// --service-account-max-token-expiration.
    pub lifetime_max: Option<SignedDuration>,
}

impl TokenIssuer {
    /// An issuer with a key of its own.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn generate(issuer: &str) -> Result<Self, TokenError> {
        Self::from_pkcs8(issuer, &Self::generate_key()?)
    }

    /// A new P-256 key, in PKCS #8.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn generate_key() -> Result<Vec<u8>, TokenError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|error| TokenError::Key(error.to_string()))?;
        Ok(key.as_ref().to_vec())
    }

    /// An issuer with a given P-256 key, in PKCS #8.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn from_pkcs8(issuer: &str, key: &[u8]) -> Result<Self, TokenError> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key, &random)
            .map_err(|error| TokenError::Key(error.to_string()))?;
        let hash = digest::digest(&digest::SHA256, key.public_key().as_ref());
        let key_id = URL_SAFE_NO_PAD.encode(hash.as_ref());
        Ok(Self { key, key_id, issuer: issuer.to_owned(), lifetime_max: None })
    }

    /// Signs a token.
    ///
    /// # Errors
    /// [`TokenError::Key`].
    pub fn sign(&self, claims: &Claims) -> Result<String, TokenError> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let mut kubernetes =
            json!({"namespace": claims.namespace, "serviceaccount": claims.account.write()});
        for (field, bound) in
            [("pod", &claims.pod), ("secret", &claims.secret), ("node", &claims.node)]
        {
            if let Some(bound) = bound {
                kubernetes[field] = bound.write();
            }
        }
        let body = json!({
            "aud": claims.audiences, "exp": claims.expires.as_second(),
            "iat": claims.issued.as_second(), "nbf": claims.issued.as_second(),
            "iss": self.issuer, "jti": claims.id, "kubernetes.io": kubernetes,
            "sub": subject(&claims.namespace, &claims.account.name),
        });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(&header), encode(&body));
        let signature = self
            .key
            .sign(&SystemRandom::new(), message.as_bytes())
            .map_err(|error| TokenError::Key(error.to_string()))?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// Checks signature, issuer and times; returns what the token says.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn check(&self, token: &str, now: Timestamp) -> Result<Claims, TokenError> {
        let (message, signature) = token
            .rsplit_once('.')
            .filter(|_| token.len() <= TOKEN_MAX)
            .ok_or(TokenError::Foreign)?;
        let (header, body) = message.split_once('.').ok_or(TokenError::Foreign)?;
        if decode(header)?["alg"] != "ES256" {
            return Err(TokenError::Foreign);
        }
        let claims = decode(body)?;
        if claims["iss"] != self.issuer.as_str() {
            return Err(TokenError::Foreign);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Foreign)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(message.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        let claims = read(&claims)?;
        if now >= claims.expires || now + LEEWAY < claims.issued {
            return Err(TokenError::Time);
        }
        Ok(claims)
    }

    /// The public key as a JSON Web Key Set.
    pub fn jwks(&self) -> Value {
        // An uncompressed point: one byte 4, then both coordinates.
        let (x, y) = self.key.public_key().as_ref()[1..].split_at(32);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }
}

/// The user name of a service account.
pub(super) fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn decode(part: &str) -> Result<Value, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Foreign)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Foreign)
}

fn read(claims: &Value) -> Result<Claims, TokenError> {
    let at = |field: &str| {
        let second = claims[field].as_i64().ok_or(TokenError::Foreign)?;
        Timestamp::from_second(second).map_err(|_| TokenError::Foreign)
    };
    Ok(Claims {
        id: json::text(claims, "jti").to_owned(),
        namespace: claims["kubernetes.io"]["namespace"].as_str().unwrap_or_default().to_owned(),
        account: Bound::read(claims, "serviceaccount").ok_or(TokenError::Foreign)?,
        pod: Bound::read(claims, "pod"),
        secret: Bound::read(claims, "secret"),
        node: Bound::read(claims, "node"),
        audiences: json::texts(claims, "aud").map(str::to_owned).collect(),
        issued: at("iat")?,
        expires: at("exp")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_was_signed_until_it_ends() {
        let issuer = TokenIssuer::generate("https://here").unwrap();
        let now = Timestamp::from_second(1_000_000).unwrap();
        let claims = Claims {
            id: "1".into(),
            namespace: "default".into(),
            account: Bound { name: "app".into(), uid: "u".into() },
            pod: Some(Bound { name: "web".into(), uid: "p".into() }),
            audiences: vec!["https://here".into()],
            issued: now,
            expires: now + SignedDuration::from_secs(600),
            ..Claims::default()
        };
        let token = issuer.sign(&claims).unwrap();
        assert_eq!(issuer.check(&token, now), Ok(claims.clone()));
        assert_eq!(issuer.check(&token, claims.expires), Err(TokenError::Time));
        let early = now - SignedDuration::from_secs(120);
        assert_eq!(issuer.check(&token, early), Err(TokenError::Time));
        let other = TokenIssuer::generate("https://here").unwrap();
        assert_eq!(other.check(&token, now), Err(TokenError::Signature));
        let elsewhere = TokenIssuer::generate("https://there").unwrap();
        assert_eq!(elsewhere.check(&token, now), Err(TokenError::Foreign));
    }

    #[test]
    fn nonsense_is_foreign() {
        let issuer = TokenIssuer::generate("https://here").unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let body = URL_SAFE_NO_PAD.encode(r#"{"iss":"https://here"}"#);
        for token in ["", ".", "a.b.c", "a.b", &format!("{none}.{body}."), &"x".repeat(20_000)] {
            let answer = issuer.check(token, Timestamp::UNIX_EPOCH);
            assert_eq!(answer, Err(TokenError::Foreign), "{token}");
        }
    }
}
