//! Limits in time and size, cancellation, and answers that cannot be used.

use std::time::Duration;

use cri::{CallErrorKind, Runtime, v1};
use tonic::{Code, Status};

use crate::fake::{Does, Fake, Place, version};

const SHORT: Duration = Duration::from_millis(60);

fn image(name: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: name.to_owned(), ..Default::default() }
}

#[tokio::test]
async fn each_call_has_its_limit() {
    let place = Place::new();
    let fake = Fake::default()
        .on("Version", Does::Hang)
        .on("RunPodSandbox", Does::Hang)
        .on("StopContainer", Does::Hang);
    let _server = fake.serve(&place.socket);
    let client = place.client_within(SHORT);

    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TimedOut(SHORT));
    let error = client.run_pod_sandbox(Default::default(), "").await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TimedOut(SHORT * 2));
    let grace = Duration::from_millis(40);
    let error = client.stop_container("c1", grace).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::TimedOut(SHORT + grace));
    assert_eq!(error.to_string(), "StopContainer of c1 failed: no answer within 100ms");
}

#[tokio::test]
async fn grace_is_rounded_up_to_seconds() {
    let place = Place::new();
    let fake = Fake::default().on("StopContainer", Does::reply(v1::StopContainerResponse {}));
    let _server = fake.serve(&place.socket);
    let client = place.client();
    for grace in [Duration::ZERO, SHORT, Duration::from_secs(30), Duration::MAX] {
        client.stop_container("c1", grace).await.unwrap();
    }
    let asked: Vec<v1::StopContainerRequest> = fake.requests("StopContainer");
    let seconds: Vec<_> = asked.iter().map(|request| request.timeout).collect();
    assert_eq!(seconds, [0, 1, 30, i64::MAX]);
}

#[tokio::test]
async fn a_pull_has_no_limit_and_dropping_it_cancels() {
    let place = Place::new();
    let fake = Fake::default().on("PullImage", Does::Hang);
    let _server = fake.serve(&place.socket);
    let client = place.client_within(SHORT);

    let longer_than_any_limit = async {
        fake.asked("PullImage", 1).await;
        tokio::time::sleep(SHORT * 4).await;
    };
    tokio::select! {
        biased;
        ended = client.pull_image(image("busybox"), None, None) => panic!("ended: {ended:?}"),
        () = longer_than_any_limit => {}
    }
    let cancelled = tokio::time::timeout(Duration::from_secs(10), fake.cancelled.notified());
    assert!(cancelled.await.is_ok(), "the runtime never heard of it");
}

#[tokio::test]
async fn hung_calls_hold_up_no_other() {
    let place = Place::new();
    let fake =
        Fake::default().on("ContainerStatus", Does::Hang).on("Version", Does::reply(version()));
    let server = fake.serve(&place.socket);
    let client = place.client();

    let hung = (0..150).map(|_| client.container_status("c"));
    let hung = futures_util::future::select_all(hung.collect::<Vec<_>>());
    let answer = async {
        fake.asked("ContainerStatus", 150).await;
        client.version().await
    };
    tokio::select! {
        biased;
        (ended, ..) = hung => panic!("a hung call ended: {ended:?}"),
        answer = answer => assert_eq!(answer.unwrap(), version()),
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_runtimes_own_words_are_kept() {
    let place = Place::new();
    let fake =
        Fake::default().on("ContainerStatus", Does::Fail(Status::not_found("no such thing")));
    let _server = fake.serve(&place.socket);
    let client = place.client();

    let error = client.container_status("c1").await.unwrap_err();
    assert!(error.is_not_found() && !error.is_unreachable());
    assert_eq!(error.reason_text(), "no such thing");
    assert_eq!(client.runtime_config().await.unwrap_err().code(), Some(Code::Unimplemented));
}

fn nonsense(error: cri::CallError) -> String {
    match error.kind {
        CallErrorKind::Nonsense(why) => why,
        other => panic!("not nonsense: {other:?}"),
    }
}

#[tokio::test]
async fn answers_without_what_counts_are_refused() {
    let place = Place::new();
    let conditions =
        vec![v1::RuntimeCondition { r#type: "RuntimeReady".to_owned(), ..Default::default() }];
    let half_a_status = v1::ContainerStatus {
        id: "c1".to_owned(),
        metadata: Some(v1::ContainerMetadata { name: "app".to_owned(), attempt: 0 }),
        created_at: 1,
        ..Default::default()
    };
    let fake = Fake::default()
        .on(
            "Version",
            Does::reply(v1::VersionResponse { version: "v1alpha2".to_owned(), ..version() }),
        )
        .on(
            "Status",
            Does::reply(v1::StatusResponse {
                status: Some(v1::RuntimeStatus { conditions }),
                ..Default::default()
            }),
        )
        .on("RunPodSandbox", Does::reply(v1::RunPodSandboxResponse::default()))
        .on("CreateContainer", Does::reply(v1::CreateContainerResponse::default()))
        .on("PodSandboxStatus", Does::reply(v1::PodSandboxStatusResponse::default()))
        .on(
            "ContainerStatus",
            Does::reply(v1::ContainerStatusResponse {
                status: Some(half_a_status),
                ..Default::default()
            }),
        )
        .on(
            "ImageStatus",
            Does::reply(v1::ImageStatusResponse {
                image: Some(v1::Image { id: "sha256:1".to_owned(), ..Default::default() }),
                ..Default::default()
            }),
        )
        .on("PullImage", Does::reply(v1::PullImageResponse::default()));
    let _server = fake.serve(&place.socket);
    let client = place.client();

    assert!(nonsense(client.version().await.unwrap_err()).contains("\"v1alpha2\""));
    let why = nonsense(client.status().await.unwrap_err());
    assert_eq!(why, "condition NetworkReady is not set");
    let why = nonsense(client.run_pod_sandbox(Default::default(), "").await.unwrap_err());
    assert_eq!(why, "pod_sandbox_id is not set");
    let created = client.create_container("s", Default::default(), Default::default()).await;
    assert_eq!(nonsense(created.unwrap_err()), "container_id is not set");
    assert_eq!(nonsense(client.pod_sandbox_status("s").await.unwrap_err()), "status is not set");
    let why = nonsense(client.container_status("c1").await.unwrap_err());
    assert_eq!(why, "status.image.image is not set");
    let why = nonsense(client.image_status(image("i")).await.unwrap_err());
    assert_eq!(why, "image.size is not set");
    let why = nonsense(client.pull_image(image("i"), None, None).await.unwrap_err());
    assert_eq!(why, "image_ref is not set");
}

#[tokio::test]
async fn an_absent_image_is_no_error() {
    let place = Place::new();
    let fake = Fake::default().on("ImageStatus", Does::reply(v1::ImageStatusResponse::default()));
    let _server = fake.serve(&place.socket);
    assert_eq!(place.client().image_status(image("i")).await.unwrap(), None);
}

#[tokio::test]
async fn replies_are_taken_up_to_16_mib() {
    let listing = |bytes: usize| {
        let id = "x".repeat(bytes);
        v1::ListPodSandboxResponse { items: vec![v1::PodSandbox { id, ..Default::default() }] }
    };
    for (bytes, fits) in [((16 << 20) - 64, true), (16 << 20, false)] {
        let place = Place::new();
        let fake = Fake::default().on("ListPodSandbox", Does::reply(listing(bytes)));
        let _server = fake.serve(&place.socket);
        match place.client().list_pod_sandbox(None).await {
            Ok(items) => assert!(fits && items[0].id.len() == bytes),
            Err(error) => assert!(!fits && nonsense(error).contains("too large")),
        }
    }
}
