//! Volumes on other machines: what pods and claims ask for, and how it is undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubelet_model::{ConfigObject, ObjectKey, ObjectKind};

use super::super::claims::Resolved;
use super::super::desired::{self, NodeFacts, Wanted};
use super::super::layout::PluginName;
use super::super::measure::Measure;
use super::super::network::DiskSpec;
use super::super::plan::{Contents, Found, Goal, Ingredients, Observed, Op, Outcome, plan};
use super::super::selinux::NodeLabels;
use super::claims::storage;
use super::{NODE, at, name, pod, volumes_of, wanted};
use crate::container_manager::Rules;
use crate::ports::RemoteDisk;

const NFS: &str = r#""nfs":{"server":"fd00::1","path":"/p","readOnly":true}"#;
const ISCSI: &str = r#""iscsi":{"targetPortal":"10.0.0.1","iqn":"iqn.x","lun":3,"fsType":"xfs",
    "chapAuthSession":true,"secretRef":{"name":"chap"}}"#;
const FC: &str = r#""fc":{"targetWWNs":["500a"],"lun":0}"#;

fn disk_of(source: &str) -> Arc<DiskSpec> {
    match wanted("", source) {
        Wanted::Disk(spec) => spec,
        other => panic!("{other:?}"),
    }
}

/// What the claim `c` of a pod that only reads it stands for, if its volume is this.
fn claimed(spec: &str) -> Result<Resolved, String> {
    claimed_to(true, spec)
}

fn claimed_to(read_only: bool, spec: &str) -> Result<Resolved, String> {
    let claim = format!(r#"{{"claimName":"c","readOnly":{read_only}}}"#);
    let source = format!(r#"{{"name":"v","persistentVolumeClaim":{claim}}}"#);
    let volumes = volumes_of(&pod("", "", &source)).expect("a volume");
    let Wanted::Claim(claim) = &volumes.volumes[&name("v")] else { panic!("no claim") };
    let volume = format!(r#"{{"accessModes":["ReadWriteOnce"],{spec}}}"#);
    let objects = [
        storage(
            ObjectKind::PersistentVolumeClaim,
            "ns",
            "c",
            r#"{"accessModes":["ReadWriteOnce"],"volumeName":"pv"}"#,
        ),
        storage(ObjectKind::PersistentVolume, "", "pv", &volume),
    ];
    let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
    claim.resolve(&get).map_err(|error| error.to_string())
}

#[test]
fn what_pods_ask_for() {
    let Wanted::Share(share) = wanted("", NFS) else { panic!("no share") };
    assert_eq!((share.share.source.as_str(), share.volume.as_str()), ("[fd00::1]:/p", "v"));
    assert!(share.share.options == ["ro"] && share.read_only && !share.persistent, "{share:?}");
    let iscsi = disk_of(ISCSI);
    assert_eq!(iscsi.global, "iface-default/10.0.0.1:3260-iqn.x-lun-3");
    assert_eq!((iscsi.fs_type.as_str(), iscsi.read_only), ("xfs", false));
    assert_eq!(iscsi.secret, Some(ObjectKey::new(ObjectKind::Secret, "ns", "chap")));
    assert_eq!(disk_of(FC).global, "500a-lun-0");
    let names = [
        iscsi.unique_name.clone(),
        disk_of(FC).unique_name.clone(),
        disk_of(r#""fc":{"wwids":["a","b"]}"#).unique_name.clone(),
    ];
    let expected = [
        "kubernetes.io/iscsi/10.0.0.1:iqn.x:3",
        "kubernetes.io/fc/[500a]:0",
        "kubernetes.io/fc/[a b]",
    ];
    assert_eq!(names, expected, "as a cluster calls them");
    let kinds = [NFS, ISCSI, FC].map(|source| wanted("", source).kind());
    assert_eq!(kinds, ["nfs", "iscsi", "fc"]);
    let none = |_: &ObjectKey| None;
    let measures = [NFS, ISCSI, FC].map(|source| Measure::of(&wanted("", source), &none));
    assert_eq!(measures, [Measure::FileSystem, Measure::FileSystem, Measure::Not]);
    // What no validation should let through leads nowhere either.
    for bad in [
        r#""fc":{"wwids":["../x"]}"#,
        r#""fc":{}"#,
        r#""iscsi":{"targetPortal":"a/b","iqn":"iqn.x","lun":0}"#,
    ] {
        assert!(matches!(wanted("", bad), Wanted::Refused(_)), "{bad}");
    }
}

#[test]
fn what_claims_stand_for() {
    let nfs = r#""mountOptions":["hard","ro","","hard"],"nfs":{"server":"s","path":"/p"}"#;
    let Ok(Resolved::Share(share)) = claimed(nfs) else { panic!("no share") };
    assert_eq!(share.share.options, ["hard", "ro"]);
    assert!(share.volume == name("pv") && share.persistent, "{share:?}");
    let iscsi = r#""iscsi":{"targetPortal":"p","iqn":"iqn.x","lun":3,"initiatorName":"iqn.me",
        "chapAuthDiscovery":true,"secretRef":{"name":"chap","namespace":"other"}}"#;
    let Ok(Resolved::Disk(disk)) = claimed(iscsi) else { panic!("no disk") };
    assert_eq!(disk.global, "iface-p:3260:pv/p:3260-iqn.x-lun-3");
    assert_eq!(disk.secret, Some(ObjectKey::new(ObjectKind::Secret, "other", "chap")));
    assert!(disk.read_only && disk.persistent && !disk.block && !disk.once_pod, "{disk:?}");
}

/// Of a volume of the pod's own, its source says whether the pod only reads it; of a claim's,
/// the pod does, whatever the PersistentVolume's source says.
#[test]
fn a_volume_is_read_only_where_the_pod_says_so() {
    for source in [
        r#""nfs":{"server":"s","path":"/p","readOnly":READ}"#,
        r#""iscsi":{"targetPortal":"p","iqn":"iqn.x","lun":3,"readOnly":READ}"#,
        r#""fc":{"targetWWNs":["500a"],"lun":0,"readOnly":READ}"#,
    ] {
        for (of_claim, of_source) in [(false, false), (false, true), (true, false), (true, true)] {
            let source = source.replace("READ", &of_source.to_string());
            let (own, options) = match wanted("", &source) {
                Wanted::Share(share) => (share.read_only, share.share.options.clone()),
                Wanted::Disk(disk) => (disk.read_only, disk.options()),
                other => panic!("{other:?}"),
            };
            assert_eq!((own, options.contains(&"ro".to_owned())), (of_source, of_source));
            let (claimed, options) = match claimed_to(of_claim, &source) {
                Ok(Resolved::Share(share)) => (share.read_only, share.share.options.clone()),
                Ok(Resolved::Disk(disk)) => (disk.read_only, disk.options()),
                other => panic!("{other:?}"),
            };
            assert_eq!((claimed, options.contains(&"ro".to_owned())), (of_claim, of_claim));
        }
    }
}

#[test]
fn a_disk_for_one_pod_is_mounted_with_its_label() {
    let level = r#","securityContext":{"seLinuxOptions":{"level":"s0:c1,c2"}}"#;
    let files = Some("system_u:object_r:container_file_t:s0");
    let option = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
    let iscsi = r#""iscsi":{"targetPortal":"p","iqn":"iqn.x","lun":3}"#;
    for (files, mode, source, expected) in [
        (files, "ReadWriteOncePod", FC, vec!["hard", option]),
        (files, "ReadWriteOncePod", iscsi, vec!["hard", option]),
        (files, "ReadWriteOnce", FC, vec!["hard"]),
        (None, "ReadWriteOncePod", FC, vec!["hard"]),
    ] {
        let labels = NodeLabels { files, all_modes: false };
        let node = NodeFacts { allocatable: NODE, rules: &Rules::default(), labels };
        let claim = r#"{"name":"v","persistentVolumeClaim":{"claimName":"c"}}"#;
        let volumes = desired::of_pod(&pod("", level, claim), node).expect("a volume");
        let Wanted::Claim(claim) = &volumes.volumes[&name("v")] else { panic!("no claim") };
        let asked = format!(r#"{{"accessModes":["{mode}"],"volumeName":"pv"}}"#);
        let volume = format!(r#"{{"accessModes":["{mode}"],"mountOptions":["hard"],{source}}}"#);
        let objects = [
            storage(ObjectKind::PersistentVolumeClaim, "ns", "c", &asked),
            storage(ObjectKind::PersistentVolume, "", "pv", &volume),
        ];
        let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
        let Ok(Resolved::Disk(disk)) = claim.resolve(&get) else { panic!("no disk") };
        assert_eq!(disk.options(), expected, "{mode} {source}");
    }
}

#[test]
fn credentials_come_from_the_secret() {
    let disk = disk_of(ISCSI);
    let missing = "couldn't get secret ns/chap error: secret \"chap\" not found";
    assert_eq!(disk.with_secret(|_| None), Err(missing.to_owned()));
    let secret = Arc::new(ConfigObject {
        key: ObjectKey::new(ObjectKind::Secret, "ns", "chap"),
        uid: String::new(),
        secret_type: String::new(),
        data: BTreeMap::from([("node.session.auth.password".to_owned(), b"hush".to_vec())]),
        binary: BTreeMap::new(),
    });
    let Ok(RemoteDisk::Iscsi(known)) = disk.with_secret(|_| Some(Arc::clone(&secret))) else {
        panic!("no disk")
    };
    assert_eq!(known.chap.secret["node.session.auth.password"], "hush");
    // None is fetched that nobody asked for.
    assert_eq!(disk_of(FC).with_secret(|_| None), Ok(disk_of(FC).disk.clone()));
}

/// Work that was given up may yet be done: it is undone where it is done.
#[test]
fn what_was_begun_is_undone() {
    let begun = |source: &str, contents: Contents| {
        let volumes = volumes_of(&pod("", "", &format!(r#"{{"name":"v",{source}}}"#)));
        let goal = Goal::Mount(Arc::new(volumes.expect("a volume")));
        let mut observed = Observed::default();
        observed.note_begun(&Op::SetUp(name("v")), &goal, &contents);
        observed.note(Op::Look, Outcome::Left(BTreeSet::new()), at(0));
        plan(&Goal::Release, &observed, &Contents::new(), at(0)).ops
    };
    let undone = |plugin| [Op::TearDown(Found { name: name("v"), plugin, device: false })];
    assert_eq!(begun(NFS, Contents::new()), undone(Some(PluginName::nfs())));
    for (source, plugin) in [(ISCSI, PluginName::iscsi()), (FC, PluginName::fc())] {
        let contents = Contents::from([(name("v"), Ok(Ingredients::Disk(disk_of(source))))]);
        assert_eq!(begun(source, contents), undone(Some(plugin)));
    }
}
