//! Manifests: bytes that someone wrote, to pods that can run here.
//!
//! Pure. Owns decoding, defaults, validation, this release's limits and the
//! identity of static pods. Never touches a file or a socket. Every problem
//! carries a field, and a line if the manifest has one for it.
//! Upstream: pkg/kubelet/config/common.go, pkg/apis/core.

mod claims;
mod coerce;
mod decode;
mod default;
mod document;
mod from_api;
mod identity;
mod object;
mod problem;
mod references;
mod storage;
#[cfg(test)]
mod tests;
mod unsupported;
mod validate;
mod volumes;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::object::ConfigObject;

pub use claims::{Claim, claims};
pub use decode::{Decoded, MAX_BYTES, ManifestError, decode};
pub use default::default_pod;
pub use from_api::from_api;
pub use identity::{Fnv128, Origin, make_static};
pub use problem::Problem;
pub use references::static_references;
pub use unsupported::{foreign_kinds, instead_of, is_migrated, unsupported, unsupported_from_api};
pub use validate::validate;

use decode::Located;
use problem::{Report, below};
pub(crate) use problem::{push_index, push_key};

/// The pods of a good manifest, and the objects beside them.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Static pods of this node: defaulted, valid, with uid, name and namespace.
    pub pods: Vec<Pod>,
    /// ConfigMaps and Secrets that pods may use.
    pub objects: Vec<Arc<ConfigObject>>,
    /// What the manifest says and nobody acts on.
    pub warnings: Vec<Problem>,
}

/// Decodes, names, defaults and checks a manifest.
///
/// # Errors
/// Every problem found; one bad item of a list refuses the whole list.
pub fn prepare(bytes: &[u8], node_name: &str, origin: &Origin) -> Result<Prepared, Vec<Problem>> {
    let decoded = decode::decode_with_positions(bytes).map_err(|error| vec![error.problem()])?;
    let Located { decoded, prefixes, problems, document } = decoded;
    let Decoded { pods, objects, warnings } = decoded;
    let mut report = Report::default();
    problems.into_iter().for_each(|problem| report.push(problem));
    let mut prepared = Vec::new();
    for (pod, prefix) in pods.into_iter().zip(prefixes) {
        let (pod, found) = prepare_pod(pod, node_name, origin);
        found.into_iter().for_each(|problem| report.push(below(&prefix, problem)));
        prepared.push(pod);
    }
    let problems = report.finish();
    if !problems.is_empty() {
        let mut problems = document.locate_all(problems);
        problems.sort_by_key(|problem| (problem.line.is_none(), problem.line));
        return Err(problems);
    }
    let named = |mut object: ConfigObject| {
        if object.uid.is_empty() {
            object.uid = identity::object_uid(&object.key, node_name, origin);
        }
        Arc::new(object)
    };
    let objects = objects.into_iter().map(named).collect();
    Ok(Prepared { pods: prepared, objects, warnings })
}

fn prepare_pod(pod: Pod, node_name: &str, origin: &Origin) -> (Pod, Vec<Problem>) {
    let nameless = pod.metadata.name.as_deref().unwrap_or_default().is_empty();
    let mut pod = make_static(pod, node_name, origin);
    default_pod(&mut pod);
    let mut problems = validate(&pod);
    if nameless {
        problems.retain(|problem| problem.field != "metadata.name");
        problems.insert(0, Problem::new("metadata.name", "missing"));
    }
    problems.extend(static_references(&pod));
    for problem in unsupported(&pod) {
        // One complaint per field: a field that is wrong and unsupported is wrong.
        let known = |other: &Problem| other.field.starts_with(&problem.field);
        if !problems.iter().any(known) {
            problems.push(problem);
        }
    }
    (pod, problems)
}
