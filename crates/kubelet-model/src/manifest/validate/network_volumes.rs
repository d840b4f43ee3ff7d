//! Volumes that lie on other machines: nfs, iscsi and fc, of pods and of
//! PersistentVolumes alike.
//!
//! Pure. Stricter than upstream in one thing: a name that becomes part of a path has no
//! slash. Upstream: validateNFSVolumeSource, validateISCSIVolumeSource,
//! validateISCSIPersistentVolumeSource and validateFCVolumeSource in
//! pkg/apis/core/validation.

use k8s_openapi::api::core::v1::{
    FCVolumeSource, ISCSIPersistentVolumeSource, ISCSIVolumeSource, NFSVolumeSource,
};

use super::super::problem::{Field, Report};
use super::names;

/// Numbers of logical units that both kinds of disks have.
const LUNS: std::ops::RangeInclusive<i32> = 0..=255;
const LUN: &str = "must be between 0 and 255";
/// What `<volume name>:<targetPortal>`, the name of an iSCSI interface, may be long.
const IFACE_BYTES_MAX: usize = 64;
/// Letters that no name of an iSCSI target has, and a slash.
const NOT_IN_TARGETS: [char; 7] = [',', ';', '*', '&', '$', '|', '/'];

/// Checks a share of a server.
pub(in super::super) fn check_nfs(nfs: &NFSVolumeSource, field: &Field, report: &mut Report) {
    let path = field.key("path");
    if nfs.server.is_empty() {
        report.add(&field.key("server"), "missing");
    } else if nfs.server.starts_with('-') || nfs.server.contains(char::is_whitespace) {
        report.add(&field.key("server"), "must be the name or the address of a server");
    }
    if nfs.path.is_empty() {
        report.add(&path, "missing");
    } else if !nfs.path.starts_with('/') {
        report.add(&path, "must be an absolute path");
    }
    report.check(&path, names::no_backsteps(&nfs.path));
}

/// What a pod's volume and a PersistentVolume have in common.
pub(in super::super) struct Iscsi<'a> {
    portal: &'a str,
    portals: &'a [String],
    iqn: &'a str,
    lun: i32,
    iface: Option<&'a str>,
    initiator: Option<&'a str>,
    chap: bool,
    /// The name of the Secret, empty if it has none.
    secret: Option<&'a str>,
}

impl<'a> Iscsi<'a> {
    /// A pod's.
    pub(in super::super) fn of_pod(source: &'a ISCSIVolumeSource) -> Self {
        let secret = source.secret_ref.as_ref();
        Self {
            portal: &source.target_portal,
            portals: source.portals.as_deref().unwrap_or_default(),
            iqn: &source.iqn,
            lun: source.lun,
            iface: source.iscsi_interface.as_deref(),
            initiator: source.initiator_name.as_deref(),
            chap: source.chap_auth_discovery == Some(true)
                || source.chap_auth_session == Some(true),
            secret: secret.map(|secret| secret.name.as_str()),
        }
    }

    /// A PersistentVolume's.
    pub(in super::super) fn of_volume(source: &'a ISCSIPersistentVolumeSource) -> Self {
        let secret = source.secret_ref.as_ref();
        Self {
            portal: &source.target_portal,
            portals: source.portals.as_deref().unwrap_or_default(),
            iqn: &source.iqn,
            lun: source.lun,
            iface: source.iscsi_interface.as_deref(),
            initiator: source.initiator_name.as_deref(),
            chap: source.chap_auth_discovery == Some(true)
                || source.chap_auth_session == Some(true),
            secret: secret.map(|secret| secret.name.as_deref().unwrap_or_default()),
        }
    }

    /// Checks it; `volume` is the name of its PersistentVolume.
    pub(in super::super) fn check(&self, volume: Option<&str>, field: &Field, report: &mut Report) {
        let portal = field.key("targetPortal");
        if self.portal.is_empty() {
            report.add(&portal, "missing");
        }
        report.check(&portal, part(self.portal));
        for (index, one) in self.portals.iter().enumerate() {
            report.check(&field.key("portals").index(index), part(one));
        }
        if self.iqn.is_empty() {
            report.add(&field.key("iqn"), "missing");
        } else {
            report.check(&field.key("iqn"), target(self.iqn));
        }
        if !LUNS.contains(&self.lun) {
            report.add(&field.key("lun"), LUN);
        }
        report.check(&field.key("iscsiInterface"), part(self.iface.unwrap_or_default()));
        match self.secret {
            None if self.chap => report.add(&field.key("secretRef"), "missing; CHAP needs it"),
            Some("") => report.add(&field.key("secretRef").key("name"), "missing"),
            _ => {}
        }
        let Some(initiator) = self.initiator else { return };
        report.check(&field.key("initiatorName"), target(initiator));
        if volume.is_some_and(|name| name.len() + 1 + self.portal.len() > IFACE_BYTES_MAX) {
            report.add(
                &portal,
                "with initiatorName, <volume name>:<targetPortal> must be at most 64 characters",
            );
        }
    }
}

/// Checks a disk of a Fibre Channel network.
pub(in super::super) fn check_fc(fc: &FCVolumeSource, field: &Field, report: &mut Report) {
    let wwns = fc.target_wwns.as_deref().unwrap_or_default();
    let wwids = fc.wwids.as_deref().unwrap_or_default();
    match (wwns.is_empty(), wwids.is_empty()) {
        (true, true) | (false, false) => {
            report.add(field, "must have either targetWWNs or wwids, but not both");
        }
        (false, true) if fc.lun.is_none() => {
            report.add(&field.key("lun"), "missing; targetWWNs need it");
        }
        _ => {}
    }
    if fc.lun.is_some_and(|lun| !wwns.is_empty() && !LUNS.contains(&lun)) {
        report.add(&field.key("lun"), LUN);
    }
    for (key, all) in [("targetWWNs", wwns), ("wwids", wwids)] {
        for (index, one) in all.iter().enumerate() {
            let field = field.key(key).index(index);
            if one.is_empty() {
                report.add(&field, "missing");
            }
            report.check(&field, part(one));
        }
    }
}

/// It becomes part of a path.
fn part(text: &str) -> Result<(), &'static str> {
    match text.contains(['/', '\0']) || text.starts_with('-') {
        true => Err("must not contain '/' nor start with '-'"),
        false => Ok(()),
    }
}

/// The name of a target or an initiator.
fn target(name: &str) -> Result<(), &'static str> {
    let (kind, rest) = name.split_at_checked(4).unwrap_or((name, ""));
    let letters = |wanted: usize| {
        rest.len() == wanted && rest.chars().all(|letter| letter.is_ascii_alphanumeric())
    };
    let good = match kind {
        "iqn." => is_qualified(rest),
        "eui." => letters(16),
        "naa." => letters(32),
        _ => return Err("must start with iqn., eui. or naa."),
    };
    match good {
        true => Ok(()),
        false => Err("must be iqn.<yyyy-mm>.<domain>:<name>, eui.<16> or naa.<32 letters>"),
    }
}

/// `2003-01.com.example:disk`, after `iqn.`.
fn is_qualified(rest: &str) -> bool {
    let Some((authority, name)) = rest.split_once(':') else { return false };
    let Some((date, domain)) = authority.split_once('.') else { return false };
    let digits = |text: &str, wanted: usize| {
        text.len() == wanted && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_date =
        date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let in_domain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    let in_name = |letter: char| !letter.is_whitespace() && !NOT_IN_TARGETS.contains(&letter);
    is_date
        && !domain.is_empty()
        && domain.chars().all(in_domain)
        && !name.is_empty()
        && name.chars().all(in_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_targets() {
        for good in [
            "iqn.2003-01.com.example:disk.1",
            "iqn.2003-01.com.example:a:b=c",
            "eui.0123456789abcdef",
            "naa.0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(target(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "iqn",
            "iqn.2003-01.com.example",
            "iqn.2003-1.com.example:x",
            "iqn.03-01.c:x",
            "iqn.2003-01.:x",
            "iqn.2003-01.com_x:x",
            "iqn.2003-01.com.example:",
            "iqn.2003-01.com.example:a/b",
            "iqn.2003-01.com.example:a b",
            "iqn.2003-01.com.example:a;b",
            "eui.0123",
            "naa.0123456789abcdef",
            "wwn.0123",
        ] {
            assert!(target(bad).is_err(), "{bad}");
        }
    }
}
