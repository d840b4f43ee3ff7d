//! Whether this host lets the agent start: ports, directories, name, environment.
//!
//! Reads the outcome of loading, not the checked configuration, so that a
//! problem there hides none here. Changes nothing: ports are bound and let go,
//! directories are looked at and not made.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use kubelet::node::{CONTAINER_LOG_LINKS, Node};
use kubelet_config::path::FieldPath;
use kubelet_config::{Outcome, Problem};
use rustix::fs::Access;
use serde_json::Value;

use crate::{logging, service_manager};

/// Everything on this host that would stop a start.
pub fn problems(outcome: &Outcome) -> Vec<Problem> {
    let mut problems = Vec::new();
    ports(outcome, &mut problems);
    directories(outcome, &mut problems);
    if let Some(config) = &outcome.config
        && let Err(error) = Node::new(config, &outcome.flags)
    {
        problems.push(Problem::other("this node", error.to_string()));
    }
    if let Err(error) = logging::from_environment() {
        problems.push(Problem::other("RUST_LOG", format!("{error:#}; correct or unset it")));
    }
    if let Err(error) = service_manager::watchdog_from_environment() {
        problems.push(Problem::other("systemd watchdog", error.to_string()));
    }
    problems
}

/// The ports the agent opens. All are held until the last was tried, for they
/// must not be the same.
fn ports(outcome: &Outcome, problems: &mut Vec<Problem>) {
    let mut held = Vec::new();
    for (port_field, address_field) in
        [("healthzPort", "healthzBindAddress"), ("readOnlyPort", "address")]
    {
        let Some(address) = socket(&outcome.effective, port_field, address_field) else { continue };
        let port = address.port();
        let wrong = match TcpListener::bind(address) {
            Ok(listener) => {
                held.push(listener);
                continue;
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => format!(
                "cannot listen on {address}: the port is busy; end what holds it (ss -ltnp 'sport = :{port}' \
                 names it) or set another {port_field}"
            ),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => format!(
                "cannot listen on {address}: this host does not have the address; set another {address_field}"
            ),
            Err(error) => format!("cannot listen on {address}: {error}; set another {port_field}"),
        };
        problems.push(located(outcome, port_field, port.to_string(), wrong));
    }
}

/// Nothing for a port that is off, and for what validation refuses.
fn socket(effective: &Value, port_field: &str, address_field: &str) -> Option<SocketAddr> {
    let port =
        u16::try_from(effective.get(port_field)?.as_u64()?).ok().filter(|port| *port != 0)?;
    let ip: IpAddr = effective.get(address_field)?.as_str()?.parse().ok()?;
    Some(SocketAddr::new(ip, port))
}

fn directories(outcome: &Outcome, problems: &mut Vec<Problem>) {
    if let Err(wrong) = can_make(&outcome.flags.root_dir) {
        problems.push(Problem::flag("root-dir", wrong));
    }
    let logs = outcome.effective.get("podLogsDir").and_then(Value::as_str).unwrap_or_default();
    if !logs.is_empty()
        && let Err(wrong) = can_make(Path::new(logs))
    {
        problems.push(located(outcome, "podLogsDir", format!("{logs:?}"), wrong));
    }
    if let Err(wrong) = can_make(Path::new(CONTAINER_LOG_LINKS)) {
        problems.push(Problem::other(CONTAINER_LOG_LINKS, wrong));
    }
    // Not opened: that would tell a running agent to give way.
    if let Some(file) = &outcome.flags.lock_file {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        if file.is_dir() {
            problems.push(Problem::flag("lock-file", format!("{} is a directory", file.display())));
        } else if !parent.is_dir() {
            let wrong = format!("{} is not a directory; create it", parent.display());
            problems.push(Problem::flag("lock-file", wrong));
        }
    }
}

/// Whether a directory is there and writable, or could be made: the nearest
/// thing that exists on its path has to be a directory one may write to.
fn can_make(directory: &Path) -> Result<(), String> {
    for place in directory.ancestors() {
        let shown = place.display();
        match std::fs::symlink_metadata(place) {
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                continue;
            }
            Err(error) => return Err(format!("cannot look at {shown}: {error}")),
        }
        // Follows links: one that leads nowhere is in the way of making the directory.
        return match std::fs::metadata(place) {
            Ok(meta) if !meta.is_dir() => {
                Err(format!("{shown} is not a directory; move it away or name another directory"))
            }
            Ok(_) => {
                rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
                    format!(
                        "{shown} is not writable: {error}; run as root or name another directory"
                    )
                })
            }
            Err(error) => Err(format!("{shown} is a link that leads nowhere ({error}); remove it")),
        };
    }
    // A relative path whose first part does not exist yet; validation refuses those it must.
    Ok(())
}

fn located(outcome: &Outcome, field: &str, value: String, wrong: String) -> Problem {
    let origin = outcome.provenance.origin(&FieldPath::dotted(field)).cloned();
    Problem { origin, ..Problem::field(field, value, wrong) }
}

#[cfg(test)]
mod tests {
    use super::can_make;

    #[test]
    fn directories_that_could_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        assert_eq!(can_make(root), Ok(()));
        assert_eq!(can_make(&root.join("a/b/c")), Ok(()));
        assert!(!root.join("a").exists(), "a check makes nothing");
        std::fs::write(root.join("file"), "").unwrap();
        for path in ["file", "file/below/it"] {
            let wrong = can_make(&root.join(path)).unwrap_err();
            assert!(wrong.contains("file is not a directory"), "{wrong}");
        }
        std::os::unix::fs::symlink(root.join("gone"), root.join("link")).unwrap();
        assert!(can_make(&root.join("link/x")).unwrap_err().contains("leads nowhere"));
    }
}
