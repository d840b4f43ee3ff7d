//! Which signing requests may be signed, and which a node's agent may have approved.
//!
//! Pure. Upstream: pkg/apis/certificates/helpers.go,
//! pkg/controller/certificates/approver/sarapprove.go.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose};
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

use crate::auth::MASTERS;
use crate::json;

/// Signers that this server is.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// What a request asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// The request itself, in PEM.
    pub(super) pem: String,
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    /// Names and addresses.
    pub(super) names: usize,
    /// Mail addresses and URIs.
    pub(super) other_names: usize,
    pub(super) usages: Vec<String>,
}

/// Whether this server signs for a signer.
pub(super) fn is_ours(signer: &str) -> bool {
    matches!(signer, KUBELET_CLIENT | KUBELET_SERVING | CLIENT)
}

/// Reads the request inside a CertificateSigningRequest.
pub(super) fn read(object: &Value) -> Result<Request, String> {
    let encoded = json::text(object, "spec.request");
    let pem =
        STANDARD.decode(encoded).map_err(|error| format!("spec.request is not base64: {error}"))?;
    let (_, block) =
        parse_x509_pem(&pem).map_err(|error| format!("spec.request is not PEM: {error}"))?;
    let (_, parsed) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("spec.request is not a signing request: {error}"))?;
    let subject = &parsed.certification_request_info.subject;
    let name = subject.iter_common_name().find_map(|name| name.as_str().ok());
    let mut request = Request {
        pem: String::from_utf8_lossy(&pem).into_owned(),
        common_name: name.unwrap_or_default().to_owned(),
        organizations: subject
            .iter_organization()
            .filter_map(|group| group.as_str().ok().map(str::to_owned))
            .collect(),
        usages: json::texts(object, "spec.usages").map(str::to_owned).collect(),
        ..Request::default()
    };
    for extension in parsed.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) | GeneralName::IPAddress(_) => request.names += 1,
                    _ => request.other_names += 1,
                }
            }
        }
    }
    Ok(request)
}

/// Why a signer does not sign a request, if so.
pub(super) fn complaint(signer: &str, request: &Request) -> Option<&'static str> {
    let has = |usage: &str| request.usages.iter().any(|known| known == usage);
    let only =
        |allowed: &[&str]| request.usages.iter().all(|usage| allowed.contains(&usage.as_str()));
    let of_node = request.organizations == ["system:nodes"];
    let named = request.common_name.starts_with("system:node:");
    let client = ["digital signature", "key encipherment", "client auth"];
    let server = ["digital signature", "key encipherment", "server auth"];
    match signer {
        KUBELET_CLIENT | KUBELET_SERVING if !of_node => {
            Some("subject organization is not system:nodes")
        }
        KUBELET_CLIENT | KUBELET_SERVING if !named => {
            Some("subject common name does not begin with system:node: ")
        }
        _ if request.other_names > 0 => Some("emailSANs and uriSANs are not allowed"),
        KUBELET_CLIENT if request.names > 0 => Some("DNS and IP subjectAltNames are not allowed"),
        KUBELET_SERVING if request.names == 0 => Some("DNS or IP subjectAltName is required"),
        KUBELET_CLIENT if !only(&client) || !has("client auth") || !has("digital signature") => {
            Some("usages did not match what a kubelet's client certificate has")
        }
        KUBELET_SERVING if !only(&server) || !has("server auth") || !has("digital signature") => {
            Some("usages did not match what a kubelet's serving certificate has")
        }
        CLIENT if request.organizations.iter().any(|group| group == MASTERS) => {
            Some("the group system:masters is not given away by requests")
        }
        CLIENT if !only(&client) || !has("client auth") => {
            Some("usages did not match what a client certificate has")
        }
        _ if request.organizations.len() > 1 => {
            Some("more than one organization cannot be signed by this server")
        }
        _ => None,
    }
}

/// Usages as certificates carry them.
pub(super) fn usages(request: &Request) -> (Vec<KeyUsagePurpose>, Vec<ExtendedKeyUsagePurpose>) {
    let (mut plain, mut extended) = (Vec::new(), Vec::new());
    for usage in &request.usages {
        match usage.as_str() {
            "digital signature" => plain.push(KeyUsagePurpose::DigitalSignature),
            "key encipherment" => plain.push(KeyUsagePurpose::KeyEncipherment),
            "client auth" => extended.push(ExtendedKeyUsagePurpose::ClientAuth),
            "server auth" => extended.push(ExtendedKeyUsagePurpose::ServerAuth),
            // `complaint` lets no others through.
            _ => {}
        }
    }
    (plain, extended)
}

/// Which permission lets a node's request be approved by itself, if any does.
pub(super) fn approving_permission(object: &Value, request: &Request) -> Option<&'static str> {
    let signer = json::text(object, "spec.signerName");
    if signer != KUBELET_CLIENT || complaint(signer, request).is_some() {
        return None;
    }
    let renews = json::text(object, "spec.username") == request.common_name;
    Some(if renews { "selfnodeclient" } else { "nodeclient" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signer_has_its_rules() {
        let node = || Request {
            common_name: "system:node:n1".into(),
            organizations: vec!["system:nodes".into()],
            usages: vec!["digital signature".into(), "client auth".into()],
            ..Request::default()
        };
        let serving = || Request {
            usages: vec!["digital signature".into(), "server auth".into()],
            names: 1,
            ..node()
        };
        for (signer, request, fine) in [
            (KUBELET_CLIENT, node(), true),
            (KUBELET_CLIENT, Request { names: 1, ..node() }, false),
            (KUBELET_CLIENT, Request { common_name: "ann".into(), ..node() }, false),
            (
                KUBELET_CLIENT,
                Request { organizations: vec!["system:masters".into()], ..node() },
                false,
            ),
            (
                KUBELET_CLIENT,
                Request { usages: vec!["client auth".into(), "cert sign".into()], ..node() },
                false,
            ),
            (KUBELET_SERVING, serving(), true),
            (KUBELET_SERVING, Request { names: 0, ..serving() }, false),
            (KUBELET_SERVING, Request { other_names: 1, ..serving() }, false),
            (
                CLIENT,
                Request { common_name: "ann".into(), organizations: vec!["a".into()], ..node() },
                true,
            ),
            (CLIENT, Request { organizations: vec!["a".into(), "b".into()], ..node() }, false),
            (CLIENT, Request { organizations: vec!["system:masters".into()], ..node() }, false),
            (CLIENT, serving(), false),
        ] {
            assert_eq!(complaint(signer, &request).is_none(), fine, "{signer} {request:?}");
        }
    }
}
