//! Writes that need more than the permission for their address, and pods that are
//! given something of their service account.
//!
//! Upstream: plugin/pkg/admission (certificates, serviceaccount).

use serde_json::Value;

use super::api::{Api, Call};
use super::request::Target;
use crate::auth::Attributes;
use crate::error::ApiError;
use crate::json;
use crate::objects::{account_of, with_account};
use crate::resources::Subresource;

impl Api {
    /// A new object with what the server adds to it.
    pub(super) fn complete(
        &self,
        target: &Target,
        object: Value,
        suffix: &str,
    ) -> Result<Value, ApiError> {
        if !self.mounts_tokens || target.stored.kind != "Pod" {
            return Ok(object);
        }
        let Some(name) = account_of(&object) else { return Ok(object) };
        let account =
            self.look_up("serviceaccounts", &target.namespace, name).map_err(|error| {
                let why = format!(
                    "error looking up service account {}/{name}: {error}",
                    target.namespace
                );
                ApiError::forbidden(Some(target.shown), json::text(&object, "metadata.name"), &why)
            })?;
        Ok(with_account(&object, &account, suffix))
    }

    /// Whether the sender may make this of an object.
    ///
    /// Who gives a verdict on a signing request, or writes its certificate, needs the
    /// signer's permission too.
    pub(super) fn admit(
        &self,
        call: &Call<'_>,
        target: &Target,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        if target.stored.kind != "CertificateSigningRequest" {
            return Ok(());
        }
        let verb = match target.part {
            Some(Subresource::Approval) => "approve",
            Some(Subresource::Status)
                if json::at(old, "status.certificate") != json::at(new, "status.certificate") =>
            {
                "sign"
            }
            _ => return Ok(()),
        };
        let signer = json::text(old, "spec.signerName");
        let domain = signer.split('/').next().unwrap_or_default();
        let allowed = |name: &str| {
            let wanted = Attributes {
                verb: verb.to_owned(),
                group: "certificates.k8s.io".to_owned(),
                resource: "signers".to_owned(),
                name: name.to_owned(),
                ..Attributes::default()
            };
            self.authorizer.decide(&call.user, &wanted).allowed
        };
        if allowed(signer) || allowed(&format!("{domain}/*")) {
            return Ok(());
        }
        let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
        Err(ApiError::forbidden(Some(target.shown), &target.name, &why))
    }
}
