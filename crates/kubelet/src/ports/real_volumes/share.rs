//! Shares of servers, mounted by the machine's `mount`: its helpers know names of servers
//! and versions of protocols.
//!
//! Upstream: pkg/volume/nfs, k8s.io/mount-utils.

use std::path::Path;
use std::time::Duration;

use super::super::remote_disk::Share;
use super::super::volumes::VolumeError;
use super::machine::Machine;
use super::tool::ToolError;

/// How long a mount may take. A helper gives up after two minutes by itself, and then
/// says why.
const LIMIT: Duration = Duration::from_secs(150);

/// Mounts a share on a directory, unless something is mounted there.
pub(super) fn mount(machine: &Machine, target: &Path, share: &Share) -> Result<(), VolumeError> {
    if mounts::table::is_mount_point(target)? {
        return Ok(());
    }
    let failed = |why: String| VolumeError::Share {
        share: share.source.clone(),
        target: target.to_owned(),
        why,
    };
    // Whoever writes a pod must not be able to give options to a program of root's.
    if share.source.starts_with('-') {
        return Err(failed("no server's name begins with a dash".to_owned()));
    }
    let place = target.to_str().ok_or_else(|| failed("the path is no text".to_owned()))?;
    let options = share.options.join(",");
    let mut arguments = vec!["-t", share.fs_type];
    if !options.is_empty() {
        arguments.extend(["-o", &options]);
    }
    arguments.extend([share.source.as_str(), place]);
    let missing = |tool: &str| {
        let (tool, by) = (tool.to_owned(), share.source.clone());
        VolumeError::NoTool { tool, by, install: "nfs-common" }
    };
    let helper = format!("mount.{}", share.fs_type);
    match (machine.run)("mount", &arguments, LIMIT) {
        Ok(said) if said.status.success() => Ok(()),
        // `mount` does not say so in so many words.
        Ok(_) if !(machine.has)(&helper) => Err(missing(&helper)),
        Ok(said) => Err(failed(said.complaint())),
        Err(ToolError::Missing) => Err(missing("mount")),
        Err(ToolError::Run(error)) => Err(failed(format!("cannot run mount: {error}"))),
        Err(ToolError::TimedOut(limit, said)) => {
            let limit = limit.as_secs();
            Err(failed(format!("no answer within {limit} s; see whether the server runs. {said}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::fake::{Fake, said};
    use super::*;

    fn attempt(fake: &Fake, options: &[&str]) -> Result<(), String> {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let share = Share::nfs("files", "/exports", options);
        let mounted = mount(&fake.machine(), &fake.root().join("target"), &share);
        let root = fake.root().display().to_string();
        mounted.map_err(|error| error.to_string().replace(&root, ""))
    }

    #[test]
    fn mount_is_asked_and_what_it_says_is_told() {
        let fake = Fake::new(|_, _| Ok(said(0, "")));
        assert_eq!(attempt(&fake, &["ro", "hard"]), Ok(()));
        assert_eq!(attempt(&fake, &[]), Ok(()));
        let target = fake.root().join("target").display().to_string();
        let asked = [
            format!("mount -t nfs -o ro,hard files:/exports {target}"),
            format!("mount -t nfs files:/exports {target}"),
        ];
        assert_eq!(fake.calls(), asked);
        let fake = Fake::new(|_, _| Ok(said(32, "mount.nfs: Connection refused")));
        let error = attempt(&fake, &[]).unwrap_err();
        assert_eq!(
            error,
            "cannot mount files:/exports on /target: mount.nfs: Connection refused (exit status: \
             32)"
        );
    }

    #[test]
    fn a_server_is_no_option() {
        let fake = Fake::new(|_, _| Ok(said(0, "")));
        let share = Share::nfs("-osuid,dev", "/exports", vec![]);
        let error = mount(&fake.machine(), &fake.root().join("target"), &share).unwrap_err();
        assert!(error.to_string().ends_with("no server's name begins with a dash"), "{error}");
        assert_eq!(fake.calls(), [""; 0]);
    }

    #[test]
    fn a_missing_helper_is_named() {
        let fake = Fake::new(|_, _| Ok(said(32, "bad option; you might need a helper program")));
        let machine = Machine { has: |_| false, ..fake.machine() };
        let share = Share::nfs("files", "/exports", vec![]);
        let error = mount(&machine, &fake.root().join("target"), &share).unwrap_err().to_string();
        let missing = "is not installed on this node, and files:/exports needs it; install \
                       nfs-common";
        assert_eq!(error, format!("mount.nfs {missing}"));
        let none = Fake::new(|_, _| Err(ToolError::Missing));
        assert_eq!(attempt(&none, &[]).unwrap_err(), format!("mount {missing}"));
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_up() {
        let fake = Fake::new(|_, limit| Err(ToolError::TimedOut(limit, "trying".to_owned())));
        let error = attempt(&fake, &[]).unwrap_err();
        let why = "no answer within 150 s; see whether the server runs. trying";
        assert_eq!(error, format!("cannot mount files:/exports on /target: {why}"));
    }
}
