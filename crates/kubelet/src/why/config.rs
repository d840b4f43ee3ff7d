//! Containers that cannot be worked out, created or started. Pure.

use super::waiting::Case;
use super::{Finding, Rank};

/// The environment, user or files of a container cannot be worked out.
pub(super) fn config_error(case: Case<'_>) -> Finding {
    let (name, text) = (&case.container.name, case.message.to_lowercase());
    let has = |needle: &str| text.contains(needle);
    let (what, advice) = if has("runasnonroot") || has("non-root") || has("run as root") {
        (
            "runAsNonRoot is set, but it would run as root",
            vec![
                "Set securityContext.runAsUser to a number other than 0, e.g. 1000, that may read the image's files.",
                "Or use an image whose USER is a number other than 0. A user given by name cannot be checked and is refused.",
                "Or remove runAsNonRoot if root is what you want.",
            ],
        )
    } else if has("env file") || has("environment variable key") || has("filekeyref") {
        (
            "a variable comes from a file that does not give it",
            vec![
                "The file must be there before the container starts: let an init container write it, as lines NAME='value'.",
                "Check fileKeyRef: volumeName (an emptyDir that some container of the pod mounts), path (in the volume) and key.",
                "Mark the reference optional: true if the container can do without the key; the file must be there all the same.",
            ],
        )
    } else if has("couldn't find key") {
        (
            "a ConfigMap or Secret it refers to lacks a key",
            vec![
                "Add the key named above to the manifest of the ConfigMap or Secret, or correct the name of the key.",
                "Mark the reference optional: true if the container can do without.",
            ],
        )
    } else if has("cannot be a variable") {
        (
            "a value of a ConfigMap or Secret is no text",
            vec!["Mount the ConfigMap or Secret as a volume: files may hold any bytes."],
        )
    } else if has("configmap") || has("secret") {
        (
            "a ConfigMap or Secret it refers to is not there",
            vec![
                "Put a manifest of it (apiVersion: v1, kind: ConfigMap or Secret, same namespace) into the manifest directory, or correct the name.",
                "`klet why node` names manifests that cannot be used, and why.",
                "Mark the reference optional: true if the container can do without.",
            ],
        )
    } else if has("subpath") {
        (
            "a subPath of a volume mount cannot be used",
            vec![
                "Check volumeMounts[].subPath and subPathExpr: relative, without `..`, and every variable in it must be set.",
            ],
        )
    } else if has("hugepage") || has("quantity") {
        (
            "its resources cannot be worked out",
            vec!["Check resources.requests and resources.limits in the manifest."],
        )
    } else {
        (
            "its environment, user or files cannot be worked out",
            vec![
                "The error above names the field: correct it in the manifest; the change is picked up at once.",
            ],
        )
    };
    let mut finding = Finding::new(Rank::Failed, format!("{name} cannot be set up: {what}."))
        .waits_for("a manifest that can be carried out")
        .error(case.message);
    finding.advice.extend(advice.into_iter().map(str::to_owned));
    finding
}

/// The node could not give a container its own processors or memory.
pub(super) fn node_resources(case: Case<'_>, done: &str) -> Finding {
    let name = &case.container.name;
    let headline =
        format!("{name} was not {done}: the node could not set its processors or memory apart.");
    Finding::new(Rank::Failed, headline)
        .waits_for("the next try")
        .error(case.message)
        .advise("The error above is that of the node's CPU, memory or topology manager: look at cpuManagerPolicy, memoryManagerPolicy and topologyManagerPolicy in the kubelet's configuration.")
        .advise("Their records lie in cpu_manager_state and memory_manager_state below the kubelet's root directory. To begin anew, drain the node, stop the kubelet, remove these files and start it.")
        .advise("A pod whose CPU requests are not whole numbers, or differ from its limits, gets no processors of its own and does not meet this.")
}

/// The runtime refused to create or start a container.
pub(super) fn create_error(case: Case<'_>, verb: &str) -> Finding {
    let (name, text) = (&case.container.name, case.message.to_lowercase());
    let has = |needle: &str| text.contains(needle);
    let command = case.container.command.iter().flatten().next();
    let command = command.map_or("the image's command".to_owned(), |first| format!("{first:?}"));
    let (what, advice) = if has("executable file not found") || has("no command specified") {
        (
            format!("{command} is not in the image"),
            vec![
                "Correct command in the manifest: the program must exist in the image, under a full path or in its $PATH.".to_owned(),
                "command replaces the image's entry point; to pass arguments only, use args. A line for the shell needs [\"/bin/sh\", \"-c\", \"...\"].".to_owned(),
            ],
        )
    } else if has("exec format error") {
        (
            format!("{command} is not a program for this machine"),
            vec![
                format!("Use an image built for {}.", std::env::consts::ARCH),
                "A script must name its interpreter in the first line (#!/bin/sh).".to_owned(),
            ],
        )
    } else if has("chdir") || has("working directory") {
        (
            "its working directory is not in the image".to_owned(),
            vec!["Correct workingDir in the manifest.".to_owned()],
        )
    } else if has("support image volumes") {
        (
            "this node's container runtime knows no image volumes".to_owned(),
            vec![
                "Update the runtime: containerd has them from 2.1 on, CRI-O from 1.31 on; `crictl version` tells what you have.".to_owned(),
                "Or remove the volume from spec.volumes and volumeMounts and copy its files into the container's own image.".to_owned(),
            ],
        )
    } else if has("imagevolumemountfailed") {
        (
            "an image volume cannot be mounted into it".to_owned(),
            vec![
                "Check volumeMounts[].subPath: it must be in the image that volumes[].image.reference names.".to_owned(),
            ],
        )
    } else if has("mount") {
        (
            "a volume cannot be mounted into it".to_owned(),
            vec![
                "Check volumes[].hostPath.path on this node and volumeMounts[].mountPath: a file cannot be mounted onto a directory, nor the other way round.".to_owned(),
            ],
        )
    } else if has("no such file or directory") {
        (
            format!("{command}, or the interpreter it needs, is not in the image"),
            vec![
                "Correct command in the manifest; for a script, look at its first line (#!): that interpreter must be in the image too.".to_owned(),
                "A program linked for another C library (musl, glibc) fails the same way.".to_owned(),
            ],
        )
    } else if has("apparmor") || has("seccomp") || has("selinux") {
        (
            "a security profile cannot be applied".to_owned(),
            vec![
                "The profile must be loaded on this node: AppArmor `aa-status`; seccomp files lie below <root-dir>/seccomp.".to_owned(),
            ],
        )
    } else if has("permission denied") || has("operation not permitted") {
        (
            format!("{command} may not be executed"),
            vec![
                "Make it executable in the image (chmod +x) and readable for the user in securityContext.runAsUser.".to_owned(),
                "A read-only root or a missing capability can be the reason too.".to_owned(),
            ],
        )
    } else if has("reserved") || has("already exists") {
        (
            "an earlier instance of the same name is still there".to_owned(),
            vec![
                "klet clears it by itself. If it lasts, remove it: `crictl ps -a`, `crictl rm ID`."
                    .to_owned(),
            ],
        )
    } else if has("no space left") {
        ("the disk is full".to_owned(), vec!["Free space on this node: `df -h`.".to_owned()])
    } else {
        (
            "the runtime refused".to_owned(),
            vec![
                "The error above is the runtime's own; `journalctl -u containerd -n 50` says more."
                    .to_owned(),
            ],
        )
    };
    let mut finding =
        Finding::new(Rank::Failed, format!("The runtime cannot {verb} {name}: {what}."))
            .waits_for("the next try")
            .error(case.message);
    finding.advice = advice;
    finding
}
