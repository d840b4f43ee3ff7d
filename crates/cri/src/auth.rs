//! Debug of registry credentials: says which are set, never what they are.
//!
//! Upstream marks the same fields `debug_redact`.

use std::fmt;

use crate::v1::AuthConfig;

impl fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hide = |secret: &str| if secret.is_empty() { "" } else { "(hidden)" };
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("password", &hide(&self.password))
            .field("auth", &hide(&self.auth))
            .field("server_address", &self.server_address)
            .field("identity_token", &hide(&self.identity_token))
            .field("registry_token", &hide(&self.registry_token))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let secret = || "s3cret".to_owned();
        let auth = AuthConfig {
            username: "joe".to_owned(),
            password: secret(),
            auth: secret(),
            server_address: "registry.example".to_owned(),
            identity_token: secret(),
            registry_token: secret(),
        };
        let text = format!("{auth:?}");
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("joe") && text.contains("registry.example"), "{text}");
    }
}
