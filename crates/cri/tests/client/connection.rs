//! Connecting, losing the runtime, and finding it again.

use std::time::Duration;

use cri::{CallErrorKind, ClientConfig, CriClient, EndpointError, Runtime, v1};

use crate::fake::{Does, Fake, Place, version};

fn unreachable_because(error: cri::CallError) -> String {
    assert!(error.is_unreachable());
    match error.kind {
        CallErrorKind::Unreachable(why) => why,
        other => panic!("not unreachable: {other:?}"),
    }
}

#[tokio::test]
async fn one_client_outlives_runtimes() {
    let place = Place::new();
    let fake = Fake::default().on("Version", Does::reply(version())).on("Status", Does::Hang);
    let client = place.client();

    let why = unreachable_because(client.version().await.unwrap_err());
    assert!(why.starts_with(&format!("no socket at {}", place.socket.display())), "{why}");

    let server = fake.serve(&place.socket);
    client.version().await.unwrap();
    let hung = client.status();
    let crash = async {
        fake.asked("Status", 1).await;
        tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    };
    let (cut_off, ()) = tokio::join!(hung, crash);
    let why = unreachable_because(cut_off.unwrap_err());
    assert!(why.starts_with("the connection broke"), "{why}");

    let why = unreachable_because(client.version().await.unwrap_err());
    assert!(why.starts_with("nobody listens on"), "{why}");

    let _server = fake.serve(&place.socket);
    assert_eq!(client.version().await.unwrap(), version());
}

/// Nothing calls while the runtime restarts: the first call after it works.
#[tokio::test]
async fn a_restart_in_a_quiet_moment_goes_unnoticed() {
    let place = Place::new();
    let fake = Fake::default().on("Version", Does::reply(version()));
    let client = place.client();
    for _ in 0..5 {
        let server = fake.serve(&place.socket);
        assert_eq!(client.version().await.unwrap(), version());
        tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
        // The connection's task learns of the hang-up.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_connection_per_endpoint() {
    let (runtime, images) = (Place::new(), Place::new());
    let fake = Fake::default()
        .on("Version", Does::reply(version()))
        .on("ImageStatus", Does::reply(v1::ImageStatusResponse::default()));
    let runtime_server = fake.serve(&runtime.socket);
    let image_server = fake.serve(&images.socket);
    let config = |image_endpoint| ClientConfig {
        runtime_endpoint: runtime.endpoint(),
        image_endpoint,
        request_timeout: Duration::from_secs(20),
    };
    // The same socket, written differently.
    let plain_path = runtime.socket.display().to_string();
    for (image_endpoint, at_runtime, at_images) in
        [(None, 1, 0), (Some(plain_path), 2, 0), (Some(images.endpoint()), 3, 1)]
    {
        let client = CriClient::new(config(image_endpoint)).unwrap();
        client.version().await.unwrap();
        client.image_status(Default::default()).await.unwrap();
        assert_eq!(runtime_server.connections(), at_runtime);
        assert_eq!(image_server.connections(), at_images);
    }
}

#[tokio::test]
async fn endpoints_are_checked_up_front() {
    let config = ClientConfig {
        runtime_endpoint: "/run/r.sock".to_owned(),
        image_endpoint: Some("tcp://localhost:1".to_owned()),
        request_timeout: Duration::from_secs(1),
    };
    let error = CriClient::new(config).unwrap_err();
    assert_eq!(error, EndpointError::NotUnix("tcp://localhost:1".to_owned()));
}
