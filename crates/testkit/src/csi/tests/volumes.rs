//! Mounts, sizes and what a driver without a capability refuses.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use plugin_apis::CallError;
use plugin_apis::csi::{
    CapacityRange, NodeExpandVolumeRequest, NodeGetVolumeStatsRequest, VolumeUsage,
};

use super::{Bed, names, writer};
use crate::csi::{Code, CsiOptions, NodeCapability, SIZE_KEY};

#[tokio::test]
async fn a_volume_lives_through_stage_and_publish() {
    let bed = Bed::new(&[]);
    // Twice each: every call may be repeated.
    for _ in 0..2 {
        bed.stage("v").await.unwrap();
    }
    for _ in 0..2 {
        bed.publish("v", "a").await.unwrap();
    }
    let mut read_only = bed.publish_request("v", "b");
    read_only.readonly = true;
    bed.client.publish(read_only).await.unwrap();
    assert_eq!(bed.mounts_of("v"), names(["staged-v", "a", "b"]));

    fs::write(bed.path("a").join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(bed.path("b").join("file")).unwrap(), "kept");
    let err = fs::write(bed.path("b").join("file"), "").unwrap_err();
    assert_eq!(err.kind(), std::io::ErrorKind::ReadOnlyFilesystem);

    for target in ["a", "b", "a"] {
        bed.unpublish("v", target).await.unwrap();
        assert!(!bed.path(target).exists());
    }
    for _ in 0..2 {
        bed.unstage("v").await.unwrap();
    }
    assert!(bed.mounts_of("v").is_empty());
    assert!(!bed.path("staged-v").exists());
    let kept = bed.driver.volume_dir("v").join("file");
    assert_eq!(fs::read_to_string(kept).unwrap(), "kept");
}

#[tokio::test]
async fn a_caller_that_breaks_the_order_is_refused() {
    let bed = Bed::new(&[]);
    let code = |call: Result<(), CallError>| call.unwrap_err().code();
    assert_eq!(code(bed.publish("v", "a").await), Code::FailedPrecondition);
    let request = bed.stage_request("v");
    assert_eq!(code(bed.client.stage(request).await), Code::Internal, "no directory");
    bed.stage("v").await.unwrap();
    let mut request = bed.publish_request("v", "a");
    request.target_path.push_str("/deeper/still");
    assert_eq!(code(bed.client.publish(request).await), Code::Internal, "no parent");
    bed.publish("v", "a").await.unwrap();
    assert_eq!(code(bed.unstage("v").await), Code::FailedPrecondition, "in use");
    let mut request = bed.publish_request("v", "a");
    request.readonly = true;
    assert_eq!(code(bed.client.publish(request).await), Code::AlreadyExists);
    bed.stage("w").await.unwrap();
    assert_eq!(code(bed.publish("w", "a").await), Code::AlreadyExists, "another's");
    assert_eq!(code(bed.unpublish("w", "a").await), Code::FailedPrecondition);
    for target in ["/etc", "relative", "", &format!("{}/../../../x", bed.text("a"))] {
        let mut request = bed.publish_request("v", "a");
        request.target_path = target.to_owned();
        assert_eq!(code(bed.client.publish(request).await), Code::InvalidArgument);
    }
    for volume in ["", "..", "a/b"] {
        assert_eq!(code(bed.unpublish(volume, "x").await), Code::InvalidArgument);
    }
    assert_eq!(bed.mounts_of("v"), names(["staged-v", "a"]));
}

#[tokio::test]
async fn a_directory_with_files_is_not_removed() {
    let bed = Bed::new(&[]);
    let target = bed.path("a");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("file"), "").unwrap();
    let error = bed.unpublish("v", "a").await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    assert!(target.join("file").exists());
}

#[tokio::test]
async fn without_capabilities_little_is_left() {
    let bed = Bed::with(CsiOptions { capabilities: [].into(), ..Default::default() });
    assert_eq!(bed.stage("v").await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(bed.unstage("v").await.unwrap_err().code(), Code::Unimplemented);
    bed.publish("v", "a").await.unwrap();
    assert_eq!(bed.mounts_of("v"), names(["a"]));
    let error = bed.client.volume_stats(stats_request(&bed)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    let error = bed.client.expand(expand_request(&bed, 1, 0)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    let mut request = bed.publish_request("v", "b");
    request.volume_capability = writer("1234");
    assert_eq!(bed.client.publish(request).await.unwrap_err().code(), Code::InvalidArgument);
    bed.unpublish("v", "a").await.unwrap();
}

#[tokio::test]
async fn a_mount_group_owns_the_volume() {
    let bed = Bed::new(&[NodeCapability::VolumeMountGroup]);
    let mut request = bed.stage_request("v");
    request.volume_capability = writer("1234");
    fs::create_dir(&request.staging_target_path).unwrap();
    bed.client.stage(request).await.unwrap();
    let found = fs::metadata(bed.path("staged-v")).unwrap();
    assert_eq!((found.gid(), found.mode() & 0o2770), (1234, 0o2770));
}

fn stats_request(bed: &Bed) -> NodeGetVolumeStatsRequest {
    NodeGetVolumeStatsRequest {
        volume_id: "v".to_owned(),
        volume_path: bed.text("a"),
        ..Default::default()
    }
}

fn expand_request(bed: &Bed, required_bytes: i64, limit_bytes: i64) -> NodeExpandVolumeRequest {
    NodeExpandVolumeRequest {
        volume_id: "v".to_owned(),
        volume_path: bed.text("a"),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..Default::default()
    }
}

async fn usage(bed: &Bed) -> [VolumeUsage; 2] {
    let stats = bed.client.volume_stats(stats_request(bed)).await.unwrap();
    stats.usage.try_into().unwrap()
}

#[tokio::test]
async fn stats_are_those_of_the_file_system() {
    let bed = Bed::new(&[NodeCapability::GetVolumeStats]);
    bed.stage("v").await.unwrap();
    let error = bed.client.volume_stats(stats_request(&bed)).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "not published yet");
    bed.publish("v", "a").await.unwrap();
    let [bytes, inodes] = usage(&bed).await;
    let real = rustix::fs::statvfs(bed.dir.path()).unwrap();
    assert_eq!(bytes.total, i64::try_from(real.f_blocks * real.f_frsize).unwrap());
    assert_eq!(inodes.total, i64::try_from(real.f_files).unwrap());
    assert_eq!((bytes.unit, inodes.unit), (1, 2));
    assert!(bytes.used > 0 && bytes.used + bytes.available <= bytes.total, "{bytes:?}");
}

#[tokio::test]
async fn a_volume_with_a_size_counts_its_own_files_and_grows() {
    let bed = Bed::new(&[NodeCapability::GetVolumeStats, NodeCapability::ExpandVolume]);
    let mut request = bed.stage_request("v");
    request.volume_context = BTreeMap::from([(SIZE_KEY.to_owned(), (1 << 20).to_string())]);
    fs::create_dir(&request.staging_target_path).unwrap();
    bed.client.stage(request).await.unwrap();
    bed.publish("v", "a").await.unwrap();
    let [before, files_before] = usage(&bed).await;
    fs::write(bed.path("a").join("file"), [7; 64 << 10]).unwrap();
    // Blocks are counted once they are allocated.
    fs::File::open(bed.path("a").join("file")).unwrap().sync_all().unwrap();
    let [after, files_after] = usage(&bed).await;
    assert_eq!(after.total, 1 << 20);
    assert_eq!(after.used + after.available, after.total);
    assert!(after.used >= before.used + (64 << 10), "{before:?} {after:?}");
    assert_eq!(files_after.used, files_before.used + 1);

    let grow = async |required, limit| {
        bed.client.expand(expand_request(&bed, required, limit)).await.map_err(|err| err.code())
    };
    assert_eq!(grow(2 << 20, 0).await, Ok(2 << 20));
    assert_eq!(grow(1, 0).await, Ok(2 << 20), "never shrinks");
    assert_eq!(grow(3 << 20, 1 << 20).await, Err(Code::OutOfRange));
    assert_eq!(grow(-1, 0).await, Err(Code::OutOfRange));
    assert_eq!(usage(&bed).await[0].total, 2 << 20);
}

#[tokio::test]
async fn a_condition_is_told_by_drivers_that_know_it() {
    for (offers, expected) in [(true, Some((true, "worn out"))), (false, None)] {
        let both = [NodeCapability::GetVolumeStats, NodeCapability::VolumeCondition];
        let bed = Bed::new(if offers { &both } else { &both[..1] });
        bed.stage("v").await.unwrap();
        bed.publish("v", "a").await.unwrap();
        let told = async || bed.client.volume_stats(stats_request(&bed)).await.unwrap();
        let well = told().await.volume_condition.map(|condition| condition.abnormal);
        assert_eq!(well, expected.map(|_| false));
        bed.driver.set_condition("v", Some("worn out"));
        let ill = told().await.volume_condition;
        let ill = ill.as_ref().map(|condition| (condition.abnormal, &condition.message[..]));
        assert_eq!(ill, expected);
        bed.driver.set_condition("v", None);
        let well = told().await.volume_condition.map(|condition| condition.abnormal);
        assert_eq!(well, expected.map(|_| false));
    }
}
