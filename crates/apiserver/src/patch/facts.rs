//! How lists of each kind are merged: the field that tells their items apart.
//!
//! Pure; a table. A list that is not here is replaced as a whole.
//! Upstream: the `patchStrategy` and `patchMergeKey` tags of the API types.

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    /// The new list takes the place of the old one.
    Replaced,
    /// Items of the same value are one.
    Values,
    /// Items whose field of this name is equal are one.
    Keyed(&'static str),
}

/// Lists of every kind.
const EVERYWHERE: &[(&str, List)] =
    &[("metadata.finalizers", List::Values), ("metadata.ownerReferences", List::Keyed("uid"))];

const POD: &[(&str, List)] = &[
    ("spec.containers", List::Keyed("name")),
    ("spec.ephemeralContainers", List::Keyed("name")),
    ("spec.hostAliases", List::Keyed("ip")),
    ("spec.imagePullSecrets", List::Keyed("name")),
    ("spec.initContainers", List::Keyed("name")),
    ("spec.resourceClaims", List::Keyed("name")),
    ("spec.schedulingGates", List::Keyed("name")),
    ("spec.topologySpreadConstraints", List::Keyed("topologyKey")),
    ("spec.volumes", List::Keyed("name")),
    ("spec.volumes.ephemeral.volumeClaimTemplate.metadata.finalizers", List::Values),
    ("spec.volumes.ephemeral.volumeClaimTemplate.metadata.ownerReferences", List::Keyed("uid")),
    ("status.conditions", List::Keyed("type")),
    ("status.hostIPs", List::Keyed("ip")),
    ("status.podIPs", List::Keyed("ip")),
    ("status.resourceClaimStatuses", List::Keyed("name")),
];

/// Lists of a container of any sort.
const CONTAINER: &[(&str, List)] = &[
    ("env", List::Keyed("name")),
    ("ports", List::Keyed("containerPort")),
    ("volumeDevices", List::Keyed("devicePath")),
    ("volumeMounts", List::Keyed("mountPath")),
];

const CONTAINERS: &[&str] = &["spec.containers", "spec.ephemeralContainers", "spec.initContainers"];

/// How the list at a path of a kind is merged. Positions are no part of a path.
pub(super) fn list(kind: &str, path: &str) -> List {
    let table: &[(&str, List)] = match kind {
        "Pod" => {
            let inside = |outer: &&str| path.strip_prefix(outer)?.strip_prefix('.');
            if let Some(field) = CONTAINERS.iter().find_map(inside) {
                return look_up(CONTAINER, field).unwrap_or(List::Replaced);
            }
            POD
        }
        "Node" => &[
            ("spec.podCIDRs", List::Values),
            ("status.addresses", List::Keyed("type")),
            ("status.conditions", List::Keyed("type")),
        ],
        "Namespace" | "PersistentVolumeClaim" | "PodCertificateRequest" => {
            &[("status.conditions", List::Keyed("type"))]
        }
        "Service" => {
            &[("spec.ports", List::Keyed("port")), ("status.conditions", List::Keyed("type"))]
        }
        "ServiceAccount" => &[("secrets", List::Keyed("name"))],
        "CSINode" => &[("spec.drivers", List::Keyed("name"))],
        _ => &[],
    };
    look_up(EVERYWHERE, path).or_else(|| look_up(table, path)).unwrap_or(List::Replaced)
}

fn look_up(table: &[(&str, List)], path: &str) -> Option<List> {
    table.iter().find(|(known, _)| *known == path).map(|(_, list)| *list)
}
