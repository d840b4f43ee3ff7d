//! What `iscsiadm` is asked, in which order, and what may go wrong. Pure.
//!
//! Upstream: pkg/volume/iscsi/iscsi_util.go.

use super::super::remote_disk::IscsiDisk;

/// There is a session already.
const SESSION_EXISTS: i32 = 15;
/// There is no such session.
const NO_SESSION: i32 = 2;
/// There is no such record.
const NO_RECORD: i32 = 21;
/// What is not there need not be removed.
const GONE: &[i32] = &[NO_SESSION, NO_RECORD];

const DISCOVERY: &str = "discovery.sendtargets.auth.";
const SESSION: &str = "node.session.auth.";
/// What a Secret may hold, after either of these.
const CREDENTIALS: [&str; 4] = ["username", "password", "username_in", "password_in"];

/// One call of `iscsiadm`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Step {
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it is for, if nothing goes on without it.
    pub must: Option<&'static str>,
    /// Exit codes that are as good as success.
    pub fine: &'static [i32],
    /// What is asked if it fails.
    pub undo: Vec<String>,
    /// Its arguments are nobody's business.
    pub secret: bool,
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

fn with(mut base: Vec<String>, more: &[&str]) -> Vec<String> {
    base.extend(words(more));
    base
}

fn step(base: Vec<String>, more: &[&str]) -> Step {
    Step { arguments: with(base, more), ..Step::default() }
}

/// Arguments about an interface.
pub(super) fn iface(name: &str, operation: &str) -> Vec<String> {
    words(&["-m", "iface", "-I", name, "-o", operation])
}

/// What an interface transports by; `None` if it does not say.
pub(super) fn transport(shown: &str) -> Option<&str> {
    let name = shown.lines().find_map(|line| line.strip_prefix("iface.transport_name = "))?;
    Some(match name.trim() {
        "<empty>" => "tcp",
        name => name,
    })
}

/// The steps that make a copy of an interface under another name, with an initiator of
/// its own. `shown` is what the machine's own has.
pub(super) fn copy_iface(disk: &IscsiDisk, shown: &str) -> Vec<Step> {
    let mut settings: Vec<(&str, &str)> = Vec::new();
    for line in shown.lines().filter(|line| line.starts_with("iface.")) {
        let Some((name, value)) = line.split_once(" = ") else { continue };
        let (name, value) = (name.trim(), value.trim());
        let own = matches!(name, "iface.iscsi_ifacename" | "iface.initiatorname");
        if !own && value != "<empty>" {
            settings.push((name, value));
        }
    }
    settings.push(("iface.initiatorname", &disk.initiator));
    settings.sort_unstable();
    let must = Some("make an interface");
    let new = Step {
        arguments: iface(&disk.iface, "new"),
        must,
        fine: &[SESSION_EXISTS],
        ..Step::default()
    };
    let update = settings.iter().map(|(name, value)| Step {
        must,
        undo: iface(&disk.iface, "delete"),
        ..step(iface(&disk.iface, "update"), &["-n", name, "-v", value])
    });
    std::iter::once(new).chain(update).collect()
}

/// The steps that log in at a portal.
pub(super) fn login(disk: &IscsiDisk, portal: &str) -> Vec<Step> {
    let discovery =
        || words(&["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", &disk.iface]);
    let node = || words(&["-m", "node", "-p", portal, "-T", &disk.iqn, "-I", &disk.iface]);
    let mut steps = vec![step(discovery(), &["-o", "new"])];
    if disk.chap.discovery {
        steps.extend(chap(disk, &discovery(), DISCOVERY));
    }
    steps.push(Step {
        must: Some("ask for targets"),
        undo: with(discovery(), &["-o", "delete"]),
        ..step(discovery(), &["--discover"])
    });
    // Only the unit that is wanted is looked for, so that nobody has others' disks.
    steps.push(step(node(), &["-o", "update", "-n", "node.session.scan", "-v", "manual"]));
    if disk.chap.session {
        steps.extend(chap(disk, &node(), SESSION));
    }
    steps.push(Step {
        must: Some("log in"),
        fine: &[SESSION_EXISTS],
        undo: with(node(), &["-o", "delete"]),
        ..step(node(), &["--login"])
    });
    // A node that boots does not wait for it.
    let all = words(&["-m", "node", "-p", portal, "-T", &disk.iqn]);
    steps.push(step(all, &["-o", "update", "-n", "node.startup", "-v", "manual"]));
    steps
}

fn chap(disk: &IscsiDisk, base: &[String], prefix: &str) -> Vec<Step> {
    let must = Some("set CHAP");
    let update = |name: &str, value: &str| {
        step(base.to_vec(), &["-o", "update", "-n", &format!("{prefix}{name}"), "-v", value])
    };
    let mut steps = vec![Step { must, ..update("authmethod", "CHAP") }];
    for name in CREDENTIALS {
        let value = disk.chap.secret.get(&format!("{prefix}{name}"));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            steps.push(Step { must, secret: true, ..update(name, value) });
        }
    }
    steps
}

/// The steps that log out everywhere, and leave no record.
pub(super) fn logout(disk: &IscsiDisk) -> Vec<Step> {
    let mut portals = disk.portals.clone();
    portals.dedup();
    let mut steps = Vec::new();
    for portal in &portals {
        let node = || words(&["-m", "node", "-p", portal, "-T", &disk.iqn]);
        let iface = ["-I", disk.iface.as_str()];
        let out = with(with(node(), &["--logout"]), &iface);
        let delete = with(with(node(), &["-o", "delete"]), &iface);
        for (arguments, must) in [(out, "log out"), (delete, "remove the record")] {
            steps.push(Step { arguments, must: Some(must), fine: GONE, ..Step::default() });
        }
    }
    if disk.owns_iface() {
        let arguments = iface(&disk.iface, "delete");
        let must = Some("remove the interface");
        steps.push(Step { arguments, must, fine: GONE, ..Step::default() });
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::expect;

    use super::super::super::remote_disk::Chap;
    use super::*;

    fn shown(steps: &[Step]) -> String {
        let line = |step: &Step| {
            let secret = if step.secret { " [secret]" } else { "" };
            let undo = match step.undo.is_empty() {
                true => String::new(),
                false => format!(" || {}", step.undo.join(" ")),
            };
            let fine = step.fine.iter().map(|code| format!(" ok={code}")).collect::<String>();
            format!("{}{undo}{fine}{secret}\n", step.arguments.join(" "))
        };
        steps.iter().map(line).collect()
    }

    fn disk(initiator: Option<&str>) -> IscsiDisk {
        IscsiDisk::new("pv", ["10.0.0.1".to_owned()], ("iqn.x", 3), None, initiator)
    }

    #[test]
    fn logins_are_upstreams() {
        expect![[r#"
            -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new
            -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default --discover || -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o delete
            -m node -p 10.0.0.1:3260 -T iqn.x -I default -o update -n node.session.scan -v manual
            -m node -p 10.0.0.1:3260 -T iqn.x -I default --login || -m node -p 10.0.0.1:3260 -T iqn.x -I default -o delete ok=15
            -m node -p 10.0.0.1:3260 -T iqn.x -o update -n node.startup -v manual
        "#]]
        .assert_eq(&shown(&login(&disk(None), "10.0.0.1:3260")));
        let secret = [
            ("node.session.auth.username", "u"),
            ("node.session.auth.password", "p"),
            ("discovery.sendtargets.auth.username", "d"),
            ("node.session.auth.username_in", ""),
        ];
        let secret: BTreeMap<String, String> =
            secret.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let chap = Chap { discovery: true, session: true, secret };
        let steps = login(&IscsiDisk { chap, ..disk(None) }, "p");
        let chap: Vec<Step> =
            steps.into_iter().filter(|step| step.arguments.join(" ").contains(".auth.")).collect();
        expect![[r#"
            -m discoverydb -t sendtargets -p p -I default -o update -n discovery.sendtargets.auth.authmethod -v CHAP
            -m discoverydb -t sendtargets -p p -I default -o update -n discovery.sendtargets.auth.username -v d [secret]
            -m node -p p -T iqn.x -I default -o update -n node.session.auth.authmethod -v CHAP
            -m node -p p -T iqn.x -I default -o update -n node.session.auth.username -v u [secret]
            -m node -p p -T iqn.x -I default -o update -n node.session.auth.password -v p [secret]
        "#]]
        .assert_eq(&shown(&chap));
    }

    #[test]
    fn logouts_leave_no_record() {
        expect![[r#"
            -m node -p 10.0.0.1:3260 -T iqn.x --logout -I 10.0.0.1:3260:pv ok=2 ok=21
            -m node -p 10.0.0.1:3260 -T iqn.x -o delete -I 10.0.0.1:3260:pv ok=2 ok=21
            -m iface -I 10.0.0.1:3260:pv -o delete ok=2 ok=21
        "#]]
        .assert_eq(&shown(&logout(&disk(Some("iqn.me")))));
        assert_eq!(logout(&disk(None)).len(), 2, "the machine's interface stays");
    }

    #[test]
    fn an_interface_is_copied() {
        let of_machine = "# BEGIN RECORD\niface.iscsi_ifacename = default\n\
                          iface.net_ifacename = <empty>\niface.transport_name = tcp\n\
                          iface.initiatorname = <empty>\n# END RECORD\n";
        assert_eq!(transport(of_machine), Some("tcp"));
        assert_eq!(transport("iface.transport_name = <empty>\n"), Some("tcp"));
        assert_eq!(transport(""), None);
        expect![[r#"
            -m iface -I 10.0.0.1:3260:pv -o new ok=15
            -m iface -I 10.0.0.1:3260:pv -o update -n iface.initiatorname -v iqn.me || -m iface -I 10.0.0.1:3260:pv -o delete
            -m iface -I 10.0.0.1:3260:pv -o update -n iface.transport_name -v tcp || -m iface -I 10.0.0.1:3260:pv -o delete
        "#]]
        .assert_eq(&shown(&copy_iface(&disk(Some("iqn.me")), of_machine)));
    }
}
