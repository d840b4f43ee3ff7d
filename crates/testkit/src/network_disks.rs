//! Servers and disks of other machines without any: stand-ins for the tools by which a
//! node reaches them.
//!
//! The kernel that tests run on need know nothing of NFS, iSCSI or Fibre Channel. `mount`
//! binds a directory, `iscsiadm` keeps its records in one, and disks are loop devices
//! behind links such as udev makes. What was made outside the directory goes with the
//! stand-ins, also when a test fails.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::host;

/// Where udev puts links by the way to a disk.
const BY_PATH: &str = "/dev/disk/by-path";

/// Binds `exports/<path>` in place of what a server exports.
const MOUNT: &str = r#"#!/bin/sh
dir=@DIR@
echo "$*" >>"$dir/mount.log"
[ "$1 $2" = "-t nfs" ] || exec @MOUNT@ "$@"
shift 2
options=
if [ "$1" = -o ]; then options=$2; shift 2; fi
path=${1##*:}
if [ ! -d "$dir/exports$path" ]; then
    echo "mount.nfs: access denied by server while mounting $1" >&2
    exit 32
fi
@MOUNT@ --bind "$dir/exports$path" "$2" || exit
case ",$options," in *,ro,*) exec @MOUNT@ -o remount,bind,ro "$2" ;; esac
"#;

/// So that nobody thinks that NFS is not installed.
const MOUNT_NFS: &str = "#!/bin/sh\nexit 32\n";

/// Targets are directories: a file for each unit, which names the device, and one for
/// the password if there is one. Records are directories, too.
const ISCSIADM: &str = r#"#!/bin/sh
dir=@DIR@
mode= portal= target= iface= op= name= value=
while [ $# -gt 0 ]; do
    case $1 in
    -m) mode=$2; shift ;;
    -p) portal=$2; shift ;;
    -T) target=$2; shift ;;
    -I) iface=$2; shift ;;
    -t) shift ;;
    -o) op=$2; shift ;;
    -n) name=$2; shift ;;
    -v) value=$2; shift ;;
    --login | --logout | --discover) op=${1#--} ;;
    *) echo "iscsiadm: what is $1?" >&2; exit 7 ;;
    esac
    shift
done
echo "$mode $op $target $name" >>"$dir/iscsiadm.log"
record=$dir/nodes/$target,$portal
links=/dev/disk/by-path/ip-$portal-iscsi-$target-lun-
case $mode:$op in
iface:show)
    printf 'iface.iscsi_ifacename = %s\niface.transport_name = tcp\n' "$iface" ;;
discoverydb:new | discoverydb:update | discoverydb:delete) ;;
discoverydb:discover)
    for one in "$dir"/targets/*; do mkdir -p "$dir/nodes/${one##*/},$portal"; done ;;
node:update)
    [ -d "$record" ] || exit 21
    echo "$value" >"$record/$name" ;;
node:login)
    [ -d "$record" ] || exit 21
    [ ! -e "$record/session" ] || exit 15
    wanted=$(cat "$dir/targets/$target/password" 2>/dev/null)
    given=$(cat "$record/node.session.auth.password" 2>/dev/null)
    if [ "$wanted" != "$given" ]; then
        echo "iscsiadm: Login failed to authenticate with target" >&2
        exit 24
    fi
    for unit in "$dir/targets/$target"/lun-*; do
        ln -s "$(cat "$unit")" "$links${unit##*lun-}"
    done
    : >"$record/session" ;;
node:logout)
    [ -e "$record/session" ] || exit 21
    rm -f "$links"* "$record/session" ;;
node:delete)
    [ -d "$record" ] || exit 21
    [ ! -e "$record/session" ] || exit 15
    rm -r "$record" ;;
*) echo "iscsiadm: what is $mode $op?" >&2; exit 7 ;;
esac
"#;

/// Stand-ins for `mount` and `iscsiadm`, and a target of a name that nobody else has.
#[derive(Debug)]
pub struct NetworkDisks {
    dir: PathBuf,
    iqn: String,
}

impl NetworkDisks {
    /// Writes the stand-ins to a directory, which is made.
    pub fn new(dir: &Path) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let iqn = format!("iqn.2003-01.test.klet:{}-{number}", std::process::id());
        let mount = host::program("mount", "mount")?.display().to_string();
        let all = Self { dir: dir.to_owned(), iqn };
        for part in ["bin", "exports", "nodes"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::create_dir_all(all.target())?;
        fs::create_dir_all(BY_PATH).with_context(|| format!("cannot make {BY_PATH}"))?;
        for (tool, text) in [("mount", MOUNT), ("mount.nfs", MOUNT_NFS), ("iscsiadm", ISCSIADM)] {
            let text = text.replace("@DIR@", &dir.display().to_string()).replace("@MOUNT@", &mount);
            let path = dir.join("bin").join(tool);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(all)
    }

    /// Where the stand-ins lie.
    pub fn tools(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// The directory that the server exports under this path.
    pub fn export(&self, path: &str) -> PathBuf {
        self.dir.join("exports").join(path.trim_start_matches('/'))
    }

    /// What `mount` was asked, a line each.
    pub fn mounted(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("mount.log"))?)
    }

    /// What `iscsiadm` was asked, a line each: mode, operation, target, name.
    pub fn asked(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("iscsiadm.log"))?)
    }

    /// The target's name.
    pub fn iqn(&self) -> &str {
        &self.iqn
    }

    fn target(&self) -> PathBuf {
        self.dir.join("targets").join(&self.iqn)
    }

    /// Gives the target a unit.
    pub fn put_unit(&self, lun: u32, device: &Path) -> Result<()> {
        Ok(fs::write(self.target().join(format!("lun-{lun}")), device.display().to_string())?)
    }

    /// Has the target ask for a password.
    pub fn put_password(&self, password: &str) -> Result<()> {
        Ok(fs::write(self.target().join("password"), password)?)
    }

    /// Records, sessions and links that there are.
    pub fn left(&self) -> Result<Vec<PathBuf>> {
        let mut left = Vec::new();
        for dir in [self.dir.join("nodes"), PathBuf::from(BY_PATH)] {
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                if path.to_string_lossy().contains(&self.iqn) {
                    left.push(path);
                }
            }
        }
        Ok(left)
    }
}

impl Drop for NetworkDisks {
    fn drop(&mut self) {
        let links = fs::read_dir(BY_PATH).into_iter().flatten().flatten();
        for link in links.filter(|link| link.file_name().to_string_lossy().contains(&self.iqn)) {
            // There is nobody left to tell.
            let _ = fs::remove_file(link.path());
        }
    }
}

/// A link to a device that stands for a disk behind a Fibre Channel port, until dropped.
#[derive(Debug)]
pub struct FcLink {
    wwn: String,
    path: PathBuf,
}

impl FcLink {
    /// Unit 0 behind a port of a name that nobody else has.
    pub fn to(device: &Path) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let wwn = format!("50{:08x}{number:06x}", std::process::id());
        fs::create_dir_all(BY_PATH).with_context(|| format!("cannot make {BY_PATH}"))?;
        let path = Path::new(BY_PATH).join(format!("pci-0000:00:00.0-fc-0x{wwn}-lun-0"));
        symlink(device, &path).with_context(|| format!("cannot link {}", path.display()))?;
        Ok(Self { wwn, path })
    }

    /// The port's name.
    pub fn wwn(&self) -> &str {
        &self.wwn
    }
}

impl Drop for FcLink {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = fs::remove_file(&self.path);
    }
}
