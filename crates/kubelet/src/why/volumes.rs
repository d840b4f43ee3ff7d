//! Why volumes are not there yet, or not gone yet. Pure.

use super::{Finding, Rank};

/// What is known to go wrong, by words of the error, and what to do about it.
const ADVICE: [(&str, &str); 22] = [
    (
        "hostPath type check failed",
        "Make the path on this node what volumes[].hostPath.type asks for, or correct path or type; DirectoryOrCreate and FileOrCreate make what is missing.",
    ),
    (
        "there is no resource request for huge pages",
        "Request the pages in resources.limits (hugepages-2Mi or hugepages-1Gi) of the container that uses them.",
    ),
    (
        "multiple huge page sizes",
        "Name the size in emptyDir.medium: HugePages-2Mi or HugePages-1Gi.",
    ),
    ("cannot mount hugetlbfs", "Check that this node has such pages: `grep Huge /proc/meminfo`."),
    (
        NOT_FOUND[0],
        "Put a manifest of the ConfigMap (apiVersion: v1, kind: ConfigMap, same namespace) into the manifest directory, or correct the name. Mark it optional: true if the pod can do without.",
    ),
    (
        NOT_FOUND[1],
        "Put a manifest of the Secret (apiVersion: v1, kind: Secret, same namespace) into the manifest directory, or correct the name. Mark it optional: true if the pod can do without.",
    ),
    ("non-existent config key", "Add the key to data of the ConfigMap, or correct items[].key."),
    ("non-existent secret key", "Add the key to the Secret, or correct items[].key."),
    (
        ": persistentvolumeclaim \"",
        "Put a manifest of the PersistentVolumeClaim (same namespace, spec.volumeName set) into the manifest directory, or correct claimName.",
    ),
    (
        ": persistentvolume \"",
        "Put a manifest of the PersistentVolume into the manifest directory, or correct spec.volumeName of the claim.",
    ),
    ("\" not found", "`klet why node` names manifests that cannot be used, and why."),
    (
        "PVC is not bound",
        "Correct the manifests: the PersistentVolume must have every access mode that the claim asks for, and no claimRef or that of the claim.",
    ),
    (
        "ReadWriteOncePod access mode and is already in use",
        "End the other pod that uses the volume, or use an access mode that allows several.",
    ),
    (
        NO_DRIVER,
        "Start the CSI driver, or correct its name in the pod or in the PersistentVolume. A driver is found by its registration socket in plugins_registry below klet's root directory; klet's log says if one is refused, and why.",
    ),
    (
        "the driver left it mounted",
        "Look at the log of the CSI driver: it says that it has unmounted the path named above, and has not.",
    ),
    (
        "rpc error: code =",
        "This is what the CSI driver answered: look at its log, and whether it runs.",
    ),
    (
        "something is mounted there",
        "Unmount the path named above with `umount`: klet never removes what it has not mounted. What is mounted there stays untouched; klet goes on by itself.",
    ),
    (
        "is not yet in node's status",
        "The cluster attaches the volume: `kubectl get volumeattachment` shows how far it is, and `kubectl describe` of the pod why it does not. klet mounts it at once then.",
    ),
    (
        "no matching NodeSelectorTerms",
        "The PersistentVolume is for other nodes: its nodeAffinity and this node's labels differ. Run the pod where the volume is, or label the node.",
    ),
    (
        "it is in use",
        "End the processes that use the path named above: `fuser -vm PATH` lists them.",
    ),
    (
        "still under way",
        "The kernel has not answered: look at the disk or the server behind the path, and at `dmesg`.",
    ),
    (
        "No space left on device",
        "Free space on the disk of klet's root directory: `df -h`, `df -i`.",
    ),
];

/// Objects that are missing, as errors name them.
const NOT_FOUND: [&str; 2] = [": configmap \"", ": secret \""];

/// No driver has the name that the pod gives.
const NO_DRIVER: &str = "not found in the list of registered CSI drivers";

/// Nothing but another manifest helps against these.
const FOR_MANIFESTS: [&str; 3] = ["\" not found", "references non-existent", "PVC is not bound"];

/// The answer for volumes on their way in, or out.
pub(super) fn answer(volumes: &[String], problems: &[String], leaving: bool) -> Finding {
    let (names, one) = (volumes.join(", "), volumes.len() < 2);
    let noun = if one { "volume" } else { "volumes" };
    let Some(first) = problems.first() else {
        let headline = match leaving {
            true => "The pod's volumes are being unmounted.",
            false => "The pod's volumes are being mounted.",
        };
        return Finding::new(Rank::Underway, headline)
            .waits_for(format!("{noun} {names}"))
            .advise("Nothing: this takes moments.");
    };
    let (headline, until_then) = match leaving {
        true => {
            (format!("The pod's {noun} cannot be unmounted: {first}"), "the pod is not gone before")
        }
        false => (
            format!("The pod's {noun} cannot be mounted: {names}."),
            "none of its containers starts before",
        ),
    };
    let finding = Finding::new(Rank::Blocked, headline)
        .waits_for(format!("{noun} {names}; {until_then}"))
        .error(problems.join("; "));
    let known = ADVICE.iter().filter(|(words, _)| problems.iter().any(|p| p.contains(words)));
    let finding = known.fold(finding, |finding, (_, advice)| finding.advise(*advice));
    let is_for_manifests = |problem: &String| FOR_MANIFESTS.iter().any(|w| problem.contains(w));
    let is_for_drivers = |problem: &String| problem.contains(NO_DRIVER);
    finding.advise(if problems.iter().all(is_for_manifests) {
        "klet goes on as soon as the manifest is there."
    } else if problems.iter().all(is_for_drivers) {
        "klet goes on as soon as the driver has registered."
    } else {
        "klet tries again by itself, soon at first and then every two minutes."
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;
    use kubelet_model::Mono;
    use serde_json::json;

    use crate::progress::{NextTry, Obstacle, Progress, WaitingFor};
    use crate::why::{Explanation, Manifest, WhyFacts, explain};

    fn problem(text: &str) -> String {
        format!("MountVolume.SetUp failed for volume \"data\" : {text}")
    }

    fn explained(text: &str, leaving: bool) -> Explanation {
        let volumes = vec!["data".to_owned()];
        let what = Obstacle::Volumes { volumes, problems: vec![problem(text)], leaving };
        let (since, at) = (Mono(Duration::from_secs(50)), Mono(Duration::from_secs(104)));
        let progress = Progress {
            waiting: Some(WaitingFor { what, since }),
            next: Some(NextTry { what: "the volumes".to_owned(), at }),
            ..Progress::default()
        };
        let message = format!("unmounted volumes=[data], more: {}", problem(text));
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "PodReadyToStartContainers", "status": "False", "message": message},
        ]});
        explain(&WhyFacts {
            pod: &serde_json::from_value(json!({"spec": {"containers": []}})).expect("a pod"),
            status: &serde_json::from_value(status).expect("a status"),
            progress: Some(&progress),
            events: &[],
            logs: &BTreeMap::new(),
            manifest: &Manifest::Unknown,
            namesakes: &[],
            unheeded: &[],
            wall: Timestamp::UNIX_EPOCH,
            mono: Mono(Duration::from_secs(100)),
        })
    }

    #[test]
    fn volumes_are_named_with_what_to_do_about_them() {
        let text = "hostPath type check failed: /x is not a directory";
        let answer = explained(text, false);
        assert_eq!(answer.headline, "The pod's volume cannot be mounted: data.");
        assert_eq!(answer.last_error, Some(problem(text)));
        assert!(answer.advice[0].contains("DirectoryOrCreate"), "{:?}", answer.advice);
        assert!(answer.next.is_some_and(|next| next.starts_with("the volumes in ")));
        assert_eq!(answer.also, [""; 0], "the sandbox is not to blame");
        let text = "will not remove /p/x: something is mounted there; unmount it first";
        let answer = explained(text, true);
        assert!(answer.headline.contains("/p/x"), "{}", answer.headline);
        assert!(answer.advice[0].contains("umount"), "{:?}", answer.advice);
    }

    #[test]
    fn a_driver_that_is_missing_is_waited_for() {
        let text = "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name \
                    d.example not found in the list of registered CSI drivers";
        for leaving in [false, true] {
            let advice = explained(text, leaving).advice;
            assert!(advice[0].contains("plugins_registry"), "{advice:?}");
            let last = advice.last().expect("advice");
            assert_eq!(last, "klet goes on as soon as the driver has registered.");
        }
        let refused = "rpc error: code = Internal desc = no disk";
        let advice = explained(refused, false).advice;
        assert!(advice[0].contains("CSI driver answered"), "{advice:?}");
        assert!(advice[1].contains("tries again by itself"), "{advice:?}");
    }

    #[test]
    fn missing_objects_are_told_apart_from_what_is_tried_again() {
        for (text, wanted) in [
            ("configmap \"c\" not found", "kind: ConfigMap"),
            ("secret \"s\" not found", "kind: Secret"),
            ("configmap references non-existent config key: k", "items[].key"),
            ("references non-existent secret key: k", "Add the key to the Secret"),
            ("failed to fetch PVC: persistentvolumeclaim \"c\" not found", "claimName"),
            ("failed to fetch PV p: persistentvolume \"p\" not found", "volumeName of the claim"),
            ("PVC is not bound: volume \"p\" has no access mode ReadWriteMany", "access mode"),
        ] {
            let advice = explained(text, false).advice;
            assert!(advice[0].contains(wanted), "{text}: {advice:?}");
            let last = advice.last().expect("advice");
            assert_eq!(last, "klet goes on as soon as the manifest is there.", "{text}");
        }
    }
}
