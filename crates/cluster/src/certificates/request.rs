//! Keys, and the requests that are made with them.
//!
//! Owns nothing. Keys are P-256, as upstream's; those of a former run may be of another
//! kind. Upstream: client-go util/certificate, util/keyutil,
//! pkg/kubelet/certificate/bootstrap.

use kubelet_model::base64;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_RSA_SHA256, PublicKeyData, SanType,
};
use ring::digest::{SHA512_256, digest};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::parse;
use super::template::Template;

/// What begins a key of P-256 in PKCS #8, before its length: version and algorithm.
const PKCS8_P256: [u8; 24] = [
    0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
    0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
];

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The node asks its API server.
    Client,
    /// Others ask the node.
    Serving,
}

impl Kind {
    /// Who signs it.
    pub fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    /// What its files' names begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Client => "kubelet-client",
            Self::Serving => "kubelet-server",
        }
    }

    /// What it may be used for.
    pub(super) fn usages(self, key: &Key) -> Vec<&'static str> {
        let purpose = match self {
            Self::Client => "client auth",
            Self::Serving => "server auth",
        };
        let mut usages = vec!["digital signature", purpose];
        if key.is_rsa() {
            usages.push("key encipherment");
        }
        usages
    }
}

/// A private key. Never printed.
pub(super) struct Key(KeyPair);

impl Key {
    pub fn generate() -> Result<Self, String> {
        KeyPair::generate().map(Self).map_err(|error| format!("cannot make a key: {error}"))
    }

    /// The first key in a text; as upstream writes them too, which other software would
    /// not take.
    pub fn from_pem(text: &[u8]) -> Option<Self> {
        let found = Pem::iter_from_buffer(text).filter_map(Result::ok);
        let block = found.into_iter().find(|block| block.label.ends_with("PRIVATE KEY"))?;
        let der = match block.label.as_str() {
            "EC PRIVATE KEY" => pkcs8(&block.contents)?,
            _ => block.contents,
        };
        KeyPair::try_from(der.as_slice()).ok().map(Self)
    }

    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    fn is_rsa(&self) -> bool {
        self.0.is_compatible(&PKCS_RSA_SHA256)
    }

    /// The signing request for what is wanted, in PEM.
    pub fn request(&self, wanted: &Template) -> Result<String, String> {
        let failed = |error: rcgen::Error| format!("cannot make a signing request: {error}");
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, wanted.organization.as_str());
        params.distinguished_name.push(DnType::CommonName, wanted.common_name.as_str());
        for name in &wanted.dns_names {
            let name = name.as_str().try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        for address in &wanted.addresses {
            params.subject_alt_names.push(SanType::IpAddress(*address));
        }
        params.serialize_request(&self.0).and_then(|request| request.pem()).map_err(failed)
    }

    /// The name of the request for what is wanted: the same whenever it is made, so that
    /// whoever was ended while it waited finds it again.
    pub fn request_name(&self, wanted: &Template, usages: &[&str]) -> String {
        let public = self.0.subject_public_key_info();
        let named = [wanted.common_name.as_bytes(), wanted.organization.as_bytes()];
        let parts = [public.as_slice()].into_iter().chain(named);
        let parts = parts.chain(usages.iter().map(|usage| usage.as_bytes()));
        let mut text = String::new();
        for part in parts {
            text += &url_base64(part);
            text.push('|');
        }
        format!("node-csr-{}", url_base64(digest(&SHA512_256, text.as_bytes()).as_ref()))
    }

    /// Why a request that somebody made is not this key's for what is wanted, if so.
    pub fn differs_from(&self, request: &[u8], wanted: &Template) -> Option<String> {
        let unreadable = || Some("it cannot be read".to_owned());
        let Some(Ok(block)) = Pem::iter_from_buffer(request).next() else { return unreadable() };
        let Ok((_, read)) = X509CertificationRequest::from_der(&block.contents) else {
            return unreadable();
        };
        let info = &read.certification_request_info;
        let (name, groups) = parse::subject(&info.subject);
        if name != wanted.common_name || !groups.iter().eq([&wanted.organization]) {
            return Some(format!("it is of {name:?}"));
        }
        let same = info.subject_pki.raw == self.0.subject_public_key_info();
        (!same).then(|| "it is of another key".to_owned())
    }
}

/// A key of P-256 as it is wrapped in PKCS #8.
fn pkcs8(sec1: &[u8]) -> Option<Vec<u8>> {
    // A key of P-256 is short enough for lengths of one byte.
    let inner = u8::try_from(sec1.len()).ok().filter(|length| *length < 0x80)?;
    let length = u8::try_from(PKCS8_P256.len() + 2).ok()?.checked_add(inner)?;
    let mut der = vec![0x30, 0x81, length];
    der.extend(PKCS8_P256[..].iter());
    der.extend([0x04, inner]);
    der.extend(sec1);
    Some(der)
}

/// Base64 for names: without padding.
fn url_base64(bytes: &[u8]) -> String {
    base64::encode(bytes).trim_end_matches('=').replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As openssl and upstream write keys of P-256.
    const SEC1: &str = "-----BEGIN EC PRIVATE KEY-----
MHcCAQEEINw/VeqQ+lXb+5sn4Eot1IyM/bndjHqv1q01dhhvjRd9oAoGCCqGSM49
AwEHoUQDQgAEOlo2j/z5P83El2OS6P7NmiR328YggaGwv4ixl5BsurFqqFR8hWvK
+eBoMfb2FTAKNu2mEyh/wniWem3FtP9cCg==
-----END EC PRIVATE KEY-----
";

    #[test]
    fn keys_are_read_as_they_were_written() {
        let key = Key::generate().unwrap();
        let again = Key::from_pem(key.pem().as_bytes()).unwrap();
        assert_eq!(again.pem(), key.pem());
        let upstream = Key::from_pem(SEC1.as_bytes()).unwrap();
        assert_eq!(upstream.0.algorithm(), &rcgen::PKCS_ECDSA_P256_SHA256);
        for odd in ["", "odd", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----"]
        {
            assert!(Key::from_pem(odd.as_bytes()).is_none());
        }
    }

    #[test]
    fn a_request_has_the_same_name_each_time_and_is_known_again() {
        let key = Key::from_pem(SEC1.as_bytes()).unwrap();
        let (wanted, other) = (Template::client("n1"), Template::client("n2"));
        let usages = Kind::Client.usages(&key);
        let name = key.request_name(&wanted, &usages);
        assert_eq!(name, key.request_name(&wanted, &usages));
        // Computed by upstream's rules with other software.
        assert_eq!(name, "node-csr-zjuTsPtbxsWk4yTqq-EQbBeUe6AoZkamYXYMk63mjfI");
        assert_ne!(name, key.request_name(&other, &usages));
        assert_ne!(name, Key::generate().unwrap().request_name(&wanted, &usages));
        let request = key.request(&wanted).unwrap();
        assert_eq!(key.differs_from(request.as_bytes(), &wanted), None);
        let differs = |request: &str, wanted| key.differs_from(request.as_bytes(), wanted);
        assert!(differs(&request, &other).is_some());
        assert!(differs("odd", &wanted).is_some());
        let foreign = Key::generate().unwrap().request(&wanted).unwrap();
        assert_eq!(differs(&foreign, &wanted).as_deref(), Some("it is of another key"));
    }
}
