//! Block volumes: which claims are some, and what is left of one whatever happens.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::{ConfigObject, DesiredPod, ObjectKey, ObjectKind, Source};
use plugin_apis::csi::volume_capability::AccessType;
use tonic::Code;

use super::super::VolumeState;
use super::super::claims::{PlaceKind, Resolved};
use super::super::desired::Wanted;
use super::super::layout::PluginName;
use super::super::measure::Measure;
use super::super::metrics::plugin_of;
use super::super::plan::{Contents, Found, Goal, Ingredients, Observed, Op, Outcome, plan};
use super::bed::Bed;
use super::claims::{gone, stager, storage, told};
use super::{at, name, until, volumes_of};

/// A pod that has the claim `c` as a device, or mounted.
fn pod(used: &str) -> DesiredPod {
    let json = format!(
        r#"{{"metadata":{{"name":"web","namespace":"ns","uid":"u1"}},"spec":{{"containers":[
            {{"name":"app","image":"i",{used}}}],
            "volumes":[{{"name":"v","persistentVolumeClaim":{{"claimName":"c"}}}}]}}}}"#
    );
    let mut pod: Pod = serde_json::from_str(&json).expect("test pod");
    kubelet_model::manifest::default_pod(&mut pod);
    DesiredPod::new(Source::File, Arc::new(pod)).expect("a complete pod")
}

const DEVICE: &str = r#""volumeDevices":[{"name":"v","devicePath":"/dev/x"}]"#;
const MOUNT: &str = r#""volumeMounts":[{"name":"v","mountPath":"/v"}]"#;
const CSI: &str = r#""csi":{"driver":"d.example","volumeHandle":"h"}"#;
const LOCAL: &str = r#""local":{"path":"/dev/disk"}"#;

fn objects(claim: &str, volume: &str, source: &str) -> [Arc<ConfigObject>; 2] {
    let modes = r#""accessModes":["ReadWriteOnce"]"#;
    let claim = format!(r#"{{{modes},"volumeMode":"{claim}","volumeName":"pv"}}"#);
    let volume = format!(r#"{{{modes},"volumeMode":"{volume}",{source}}}"#);
    [
        storage(ObjectKind::PersistentVolumeClaim, "ns", "c", &claim),
        storage(ObjectKind::PersistentVolume, "", "pv", &volume),
    ]
}

fn resolved(used: &str, objects: &[Arc<ConfigObject>]) -> Result<Resolved, String> {
    let volumes = volumes_of(&pod(used)).expect("a volume");
    let Wanted::Claim(claim) = &volumes.volumes[&name("v")] else { panic!("no claim") };
    let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
    claim.resolve(&get).map_err(|error| error.to_string())
}

#[test]
fn a_volume_is_used_as_what_it_is() {
    for (used, claim, volume, source, why) in [
        (
            DEVICE,
            "Filesystem",
            "Filesystem",
            CSI,
            "volume v has volumeMode Filesystem, but is specified in volumeDevices",
        ),
        (
            MOUNT,
            "Block",
            "Block",
            LOCAL,
            "volume v has volumeMode Block, but is specified in volumeMounts",
        ),
        (
            DEVICE,
            "Block",
            "Filesystem",
            CSI,
            "error processing PVC ns/c: PVC is not bound: volume \"pv\" has another volumeMode than the claim",
        ),
        (
            DEVICE,
            "Block",
            "Block",
            r#""hostPath":{"path":"/dev/disk"}"#,
            "error processing PVC ns/c: volume \"pv\" is a hostPath, which cannot have volumeMode Block; name the device in `local` instead",
        ),
    ] {
        let found = resolved(used, &objects(claim, volume, source));
        assert_eq!(found, Err(why.to_owned()));
    }
    let Ok(Resolved::Driver(spec)) = resolved(DEVICE, &objects("Block", "Block", CSI)) else {
        panic!("no driver's volume")
    };
    let request = spec.publish_request("/s", "/t", Default::default(), &BTreeSet::new());
    let asked = request.volume_capability.and_then(|capability| capability.access_type);
    assert!(matches!(asked, Some(AccessType::Block(_))), "{asked:?}");
    let Ok(Resolved::Place(place)) = resolved(DEVICE, &objects("Block", "Block", LOCAL)) else {
        panic!("no place")
    };
    assert_eq!(place.kind, PlaceKind::Device);
    let iscsi = r#""iscsi":{"targetPortal":"p","iqn":"iqn.x","lun":3}"#;
    let fc = r#""fc":{"targetWWNs":["500a"],"lun":0}"#;
    let driver = Measure::Driver { driver: "d.example".to_owned(), handle: "h".to_owned() };
    for (source, plugin, measure) in [
        (CSI, "kubernetes.io/csi:d.example", driver),
        (LOCAL, "kubernetes.io/local-volume", Measure::Device),
        (iscsi, "kubernetes.io/iscsi", Measure::Device),
        (fc, "kubernetes.io/fc", Measure::Device),
    ] {
        let volumes = volumes_of(&pod(DEVICE)).expect("a volume");
        let (wanted, objects) = (&volumes.volumes[&name("v")], objects("Block", "Block", source));
        let get = |key: &ObjectKey| objects.iter().find(|object| object.key == *key).cloned();
        assert_eq!(Measure::of(wanted, &get), measure);
        assert_eq!(plugin_of(wanted, &get).as_deref(), Some(plugin));
    }
    // Undone where it is done, as everything.
    for (ingredients, plugin) in [
        (Ingredients::Driver(spec), PluginName::csi()),
        (Ingredients::Place(place), PluginName::local()),
    ] {
        let contents = Contents::from([(name("v"), Ok(ingredients))]);
        let goal = Goal::Mount(Arc::new(volumes_of(&pod(DEVICE)).expect("a volume")));
        let mut observed = Observed::default();
        observed.note_begun(&Op::SetUp(name("v")), &goal, &contents);
        observed.note(Op::Look, Outcome::Left(BTreeSet::new()), at(0));
        let found = Found { name: name("pv"), plugin: Some(plugin), device: true };
        let ops = plan(&Goal::Release, &observed, &Contents::new(), at(0)).ops;
        assert_eq!(ops, [Op::TearDown(found)]);
    }
}

/// The driver here makes no device: all before that is there, and all of it is undone.
#[tokio::test]
async fn what_a_driver_began_is_found_and_undone() {
    let node = stager();
    let bed = Bed::with(&node);
    bed.writer.replace(Source::File, &objects("Block", "Block", CSI));
    let pod = pod(DEVICE);
    let volumes = bed.life(&[&pod]);
    node.answers.lock().unwrap().push_back(Code::Internal);
    volumes.want(&pod);
    let failed = "MapVolume.SetUpDevice failed for volume \"pv\" : rpc error: code = Internal";
    until(&volumes, pod.uid(), told(failed)).await;
    let all = bed.root().join("plugins/kubernetes.io/csi/volumeDevices");
    let link = bed.root().join("pods/u1/volumeDevices/kubernetes.io~csi/pv");
    assert!(
        !all.join("pv").exists() && fs::symlink_metadata(&link).is_err(),
        "after a final answer"
    );
    let failed = "MapVolume.MapPodDevice failed for volume \"pv\" : driver d.example left no block device at ";
    until(&volumes, pod.uid(), told(failed)).await;
    assert_eq!(node.calls()[..3], ["stage", "stage", "publish"]);
    assert_eq!(fs::read_link(&link).expect("a link"), all.join("publish/pv/u1"));
    let note = fs::read_to_string(all.join("pv/data/vol_data.json")).expect("a note");
    assert!(note.contains(r#""volumeHandle":"h""#), "{note}");
    assert!(all.join("staging/pv").is_dir());
    let reasons: BTreeSet<_> = bed.recorder.all().iter().map(|event| event.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["FailedMapVolume"]));

    // Another life knows it from the disk alone.
    let other = bed.life(&[&pod]);
    let asked = node.calls().len();
    node.answers.lock().unwrap().extend([Code::Internal, Code::Ok, Code::Unavailable]);
    other.release(pod.uid());
    until(&other, pod.uid(), told("UnmapVolume.UnmapPodDevice failed for volume \"pv\" : ")).await;
    until(&other, pod.uid(), gone).await;
    // The first life may still ask to publish.
    let calls = node.calls().split_off(asked);
    let undone: Vec<_> = calls.iter().filter(|call| *call != "publish").collect();
    assert_eq!(undone, ["unpublish", "unpublish", "unstage", "unpublish", "unstage"]);
    assert!(fs::symlink_metadata(&link).is_err());
    for dir in ["pv", "staging/pv", "publish/pv"] {
        assert!(!all.join(dir).exists(), "{dir}");
    }
    assert_eq!(other.state(pod.uid()), Some(VolumeState::Gone));
}
