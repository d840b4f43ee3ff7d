//! Faults on demand, crashes, and what a driver leaves behind.

use std::time::Duration;

use plugin_apis::CallErrorKind;

use super::{Bed, names};
use crate::csi::{Code, CsiDriver, CsiOptions, Fault, Outcome, Rpc};
use crate::host;

/// Long enough for a call to arrive on a busy machine.
const LIMIT: Duration = Duration::from_secs(1);

/// How the last call ended, once it has.
async fn last_outcome(driver: &CsiDriver) -> Outcome {
    loop {
        match driver.calls().last().unwrap().outcome {
            Outcome::Running => tokio::time::sleep(Duration::from_millis(1)).await,
            ended => return ended,
        }
    }
}

#[tokio::test]
async fn faults_meet_one_call_each_in_order() {
    let bed = Bed::new(&[]);
    let codes = [(Code::Internal, true), (Code::Aborted, false)];
    for (code, _) in codes {
        bed.driver.inject(Rpc::NodeStageVolume, Fault::fail(code));
    }
    assert!(bed.client.probe().await.unwrap(), "other calls are spared");
    for (code, is_final) in codes {
        let error = bed.stage("v").await.unwrap_err();
        assert_eq!((error.code(), error.is_final()), (code, is_final));
        assert_eq!(error.volume, "v");
        assert!(bed.mounts_of("v").is_empty());
        assert_eq!(last_outcome(&bed.driver).await, Outcome::Answered(code));
    }
    bed.stage("v").await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_still_a_mount() {
    let bed = Bed::new(&[]);
    bed.driver.inject(Rpc::NodeStageVolume, Fault::fail(Code::DeadlineExceeded).once_done());
    let error = bed.stage("v").await.unwrap_err();
    assert_eq!((error.code(), error.is_final()), (Code::DeadlineExceeded, false));
    assert_eq!(bed.mounts_of("v"), names(["staged-v"]));
    // What fails by itself says so, fault or not.
    bed.driver.inject(Rpc::NodePublishVolume, Fault::hang().once_done());
    let error = bed.publish("w", "a").await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_hang_lasts_until_the_caller_gives_up() {
    let bed = Bed::new(&[]);
    bed.stage("v").await.unwrap();
    bed.driver.inject(Rpc::NodePublishVolume, Fault::hang());
    bed.driver.inject(Rpc::NodePublishVolume, Fault::hang().once_done());
    for mounted in [false, true] {
        let client = bed.client.within(LIMIT);
        let error = client.publish(bed.publish_request("v", "a")).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::TimedOut(LIMIT));
        assert_eq!(bed.mounts_of("v").contains("a"), mounted);
        assert_eq!(last_outcome(&bed.driver).await, Outcome::CutOff);
    }
    // Dropping the call ends it too, and holds up no other.
    bed.driver.inject(Rpc::NodeUnpublishVolume, Fault::hang());
    {
        let hung = bed.unpublish("v", "a");
        tokio::pin!(hung);
        let seen = async {
            while bed.driver.calls().last().unwrap().rpc != Rpc::NodeUnpublishVolume {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            ended = &mut hung => panic!("{ended:?}"),
            () = seen => (),
        }
        assert_eq!(bed.driver.calls().last().unwrap().outcome, Outcome::Running);
    }
    assert_eq!(last_outcome(&bed.driver).await, Outcome::CutOff);
    bed.unpublish("v", "a").await.unwrap();
}

#[tokio::test]
async fn a_crash_between_stage_and_publish_is_survived() {
    let mut bed = Bed::new(&[]);
    bed.stage("v").await.unwrap();
    bed.driver.inject(Rpc::NodePublishVolume, Fault::crash());
    let error = bed.publish("v", "a").await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unreachable(_)), "{error:?}");
    assert_eq!(last_outcome(&bed.driver).await, Outcome::Crashed);
    assert_eq!(bed.mounts_of("v"), names(["staged-v"]));
    assert!(bed.driver.socket().exists(), "a crash leaves the socket's file");
    let error = bed.publish("v", "a").await.unwrap_err();
    assert_eq!((error.code(), error.is_final()), (Code::Unavailable, false));
    assert!(error.to_string().contains("csi.sock"), "{error}");
    assert!(!bed.driver.is_up());

    bed.driver.restart().unwrap();
    assert!(bed.driver.is_up());
    // The same client finds the new one.
    bed.publish("v", "a").await.unwrap();
    assert_eq!(bed.mounts_of("v"), names(["staged-v", "a"]));
}

#[tokio::test]
async fn a_crash_after_the_effect_leaves_it() {
    let mut bed = Bed::new(&[]);
    bed.driver.inject(Rpc::NodeStageVolume, Fault::crash().once_done());
    assert!(!bed.stage("v").await.unwrap_err().is_final());
    assert_eq!(bed.mounts_of("v"), names(["staged-v"]));
    bed.driver.restart().unwrap();
    bed.stage("v").await.unwrap();
    bed.unstage("v").await.unwrap();
    assert!(bed.mounts_of("v").is_empty());
}

#[tokio::test]
async fn a_crash_breaks_the_calls_under_way() {
    let mut bed = Bed::new(&[]);
    bed.driver.inject(Rpc::Probe, Fault::hang());
    let client = bed.client.clone();
    let hung = tokio::spawn(async move { client.probe().await });
    while bed.driver.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bed.driver.crash();
    let error = hung.await.unwrap().unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Unreachable(_)), "{error:?}");
    assert_eq!(bed.driver.calls()[0].outcome, Outcome::CutOff);
}

#[tokio::test]
async fn nothing_is_left_when_a_test_ends_or_panics() {
    for panics in [false, true] {
        let bed = Bed::new(&[]);
        bed.stage("v").await.unwrap();
        bed.publish("v", "a").await.unwrap();
        let Bed { mut driver, dir, .. } = bed;
        let root = dir.path().canonicalize().unwrap();
        driver.register().unwrap();
        let sockets = [driver.socket().to_owned(), driver.registry_socket().to_owned()];
        assert_eq!(host::mounts_below(&root).unwrap().len(), 2);
        let ended = std::thread::spawn(move || {
            let _driver = driver;
            assert!(!panics, "as the test wants it");
        });
        assert_eq!(ended.join().is_err(), panics);
        assert!(host::mounts_below(&root).unwrap().is_empty());
        assert!(sockets.iter().all(|socket| !socket.exists()));
    }
}

#[test]
fn a_directory_behind_a_link_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let link = root.join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    let error = CsiDriver::start(&link, CsiOptions::default()).unwrap_err().to_string();
    assert!(error.contains("is really"), "{error}");
}
