//! Checks of the agent's own API: addresses, ports, TLS, authentication.

use std::net::IpAddr;

use super::Check;

const TLS_VERSIONS: [&str; 5] =
    ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
/// Key exchange groups by number: P-256, P-384, P-521, X25519 and their hybrids with ML-KEM.
const CURVES: [i32; 7] = [23, 24, 25, 29, 4587, 4588, 4589];

const CIPHERS: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl Check<'_> {
    pub(super) fn server(&mut self) {
        let c = self.c;
        self.range("port", c.port, 1, 65535);
        self.range("readOnlyPort", c.read_only_port, 0, 65535);
        self.range("healthzPort", c.healthz_port, 0, 65535);
        self.address("address", c.address.as_deref());
        self.address("healthzBindAddress", c.healthz_bind_address.as_deref());
        let mode = c.authorization.as_ref().and_then(|a| a.mode.as_ref());
        self.one_of("authorization.mode", mode, &["AlwaysAllow", "Webhook"]);
        if c.server_tls_bootstrap == Some(true)
            && !self.gates.enabled("RotateKubeletServerCertificate")
        {
            self.bad(
                "serverTLSBootstrap",
                true,
                "needs the feature gate RotateKubeletServerCertificate",
            );
        }
        if c.enable_system_log_query == Some(true) && c.enable_system_log_handler == Some(false) {
            self.bad("enableSystemLogQuery", true, "needs enableSystemLogHandler: true");
        }
        self.standalone_authentication();
        self.tls();
    }

    /// Reviews are the API server's; upstream refuses them too when there is none.
    fn standalone_authentication(&mut self) {
        // The secure profile says by itself that it needs an API server.
        if self.flags.kubeconfig.is_some() || self.flags.is_secure() {
            return;
        }
        let c = self.c;
        let webhook = c.authentication.as_ref().and_then(|a| a.webhook.as_ref());
        if webhook.is_some_and(|webhook| webhook.enabled == Some(true)) {
            let wrong = "a standalone node has no API server to review tokens; set it to false";
            self.bad("authentication.webhook.enabled", true, wrong);
        }
        let mode = c.authorization.as_ref().and_then(|a| a.mode.as_deref());
        if mode == Some("Webhook") {
            let wrong =
                "a standalone node has no API server to review access; set it to AlwaysAllow";
            self.bad("authorization.mode", "\"Webhook\"", wrong);
        }
    }

    fn address(&mut self, path: &str, value: Option<&str>) {
        if let Some(text) = value.filter(|text| text.parse::<IpAddr>().is_err()) {
            self.bad(path, format!("{text:?}"), "must be an IP address such as 127.0.0.1 or ::");
        }
    }

    fn tls(&mut self) {
        let c = self.c;
        let version = c.tls_min_version.as_deref().unwrap_or_default();
        if !TLS_VERSIONS.contains(&version) {
            let wrong = format!("must be one of {}", super::quoted(&TLS_VERSIONS[1..]));
            self.bad("tlsMinVersion", format!("{version:?}"), wrong);
        }
        for name in c.tls_cipher_suites.iter().flatten() {
            if !CIPHERS.contains(&name.as_str()) {
                self.bad(
                    "tlsCipherSuites",
                    format!("{name:?}"),
                    "is not a cipher suite, e.g. TLS_AES_128_GCM_SHA256",
                );
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for &curve in c.tls_curve_preferences.iter().flatten() {
            if !CURVES.contains(&curve) {
                let known = CURVES.map(|id| id.to_string()).join(", ");
                self.bad(
                    "tlsCurvePreferences",
                    curve,
                    format!("is not a known curve; use some of {known}"),
                );
            } else if !seen.insert(curve) {
                self.bad("tlsCurvePreferences", curve, "is listed twice");
            }
        }
        let has = |file: &Option<String>| file.as_deref().is_some_and(|file| !file.is_empty());
        if has(&c.tls_cert_file) != has(&c.tls_private_key_file) {
            let (set, missing) = if has(&c.tls_cert_file) {
                ("tlsCertFile", "tlsPrivateKeyFile")
            } else {
                ("tlsPrivateKeyFile", "tlsCertFile")
            };
            let file =
                if set == "tlsCertFile" { &c.tls_cert_file } else { &c.tls_private_key_file };
            let value = format!("{:?}", file.as_deref().unwrap_or_default());
            self.bad(set, value, format!("is of no use without {missing}; set both"));
        }
    }
}
