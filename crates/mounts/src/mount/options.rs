//! Mount options as people write them, sorted by who acts on them. No I/O.

use rustix::mount::MountAttrFlags;

/// Options, by who they are for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) flags: MountAttrFlags,
    pub(crate) read_only: bool,
    pub(crate) of_fs: Vec<(String, Option<String>)>,
}

/// None if an option is of another kind of mount.
pub(crate) fn split_options(options: &[String]) -> Option<Options> {
    let mut split = Options { flags: MountAttrFlags::empty(), read_only: false, of_fs: Vec::new() };
    for option in options.iter().map(|option| option.trim()) {
        let (flag, on) = match option {
            "ro" | "rw" => {
                split.read_only = option == "ro";
                continue;
            }
            "nosuid" | "suid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, option == "nosuid"),
            "nodev" | "dev" => (MountAttrFlags::MOUNT_ATTR_NODEV, option == "nodev"),
            "noexec" | "exec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, option == "noexec"),
            "nodiratime" | "diratime" => {
                (MountAttrFlags::MOUNT_ATTR_NODIRATIME, option == "nodiratime")
            }
            "nosymfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, true),
            "noatime" | "strictatime" | "relatime" | "atime" | "norelatime" => {
                split.flags.remove(MountAttrFlags::MOUNT_ATTR__ATIME);
                match option {
                    "noatime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, true),
                    "strictatime" => (MountAttrFlags::MOUNT_ATTR_STRICTATIME, true),
                    _ => continue,
                }
            }
            "bind" | "rbind" | "remount" | "move" | "loop" => return None,
            _ if is_for_mount_program(option) => continue,
            _ => {
                let (key, value) = match option.split_once('=') {
                    Some((key, value)) => (key, Some(unquote(value).to_owned())),
                    None => (option, None),
                };
                split.of_fs.push((key.to_owned(), value));
                continue;
            }
        };
        split.flags.set(flag, on);
    }
    Some(split)
}

/// Options that no kernel knows, because mount(8) and systemd act on them.
fn is_for_mount_program(option: &str) -> bool {
    const THEIRS: &[&str] = &[
        "", "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "_netdev",
        "nofail",
    ];
    THEIRS.contains(&option) || option.starts_with("x-") || option.starts_with("comment=")
}

/// An SELinux label has commas, so it is written in quotes.
fn unquote(value: &str) -> &str {
    value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(options: &[&str]) -> Option<Options> {
        split_options(&Vec::from_iter(options.iter().map(|option| (*option).to_owned())))
    }

    #[test]
    fn options_go_to_whom_they_are_for() {
        let options = split(&[
            "defaults",
            "nodev",
            "noatime",
            "relatime",
            "exec",
            "noexec",
            "x-systemd.a",
            "discard",
            "errors=remount-ro",
            "context=\"system_u:object_r:c_t:s0:c1,c2\"",
            "_netdev",
        ])
        .unwrap();
        let of_fs: Vec<_> =
            options.of_fs.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        assert_eq!(
            of_fs,
            [
                ("discard", None),
                ("errors", Some("remount-ro")),
                ("context", Some("system_u:object_r:c_t:s0:c1,c2")),
            ]
        );
        assert_eq!(
            options.flags,
            MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC
        );
        assert!(!options.read_only);
    }

    #[test]
    fn the_last_of_two_that_disagree_wins() {
        assert!(split(&["rw", "ro"]).unwrap().read_only);
        assert!(!split(&["ro", "rw"]).unwrap().read_only);
        assert!(split(&["nosuid", "suid"]).unwrap().flags.is_empty());
        let flags = split(&["noatime", "strictatime"]).unwrap().flags;
        assert_eq!(flags, MountAttrFlags::MOUNT_ATTR_STRICTATIME);
    }

    #[test]
    fn other_kinds_of_mount_are_refused() {
        for option in ["bind", "rbind", "remount", "loop"] {
            assert_eq!(split(&[option]), None, "{option}");
        }
    }
}
