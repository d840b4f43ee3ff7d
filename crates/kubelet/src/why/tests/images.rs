//! Pulls that fail, and names that make no sense.

use std::collections::BTreeSet;

use kubelet_model::Mono;
use serde_json::json;

use super::super::image::{PullTrouble, classify, name_problem, registry};
use super::{Case, has};
use crate::image_manager::{PullProgress, PullState};
use crate::progress::{Doing, Progress, Pull};

#[test]
fn pulls_fail_in_ways_that_can_be_told_apart() {
    let table = [
        ("dial tcp: lookup registry.example: no such host", PullTrouble::NoSuchHost),
        ("dial tcp: lookup x on 10.0.0.2:53: server misbehaving", PullTrouble::NoSuchHost),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", PullTrouble::Refused),
        ("dial tcp 1.2.3.4:443: i/o timeout", PullTrouble::Timeout),
        ("x509: certificate signed by unknown authority", PullTrouble::Tls),
        ("http: server gave HTTP response to HTTPS client", PullTrouble::Tls),
        (
            "pull access denied, repository does not exist or may require authorization: server message: \
          insufficient_scope: authorization failed",
            PullTrouble::Unauthorized,
        ),
        ("unexpected status code 401 Unauthorized", PullTrouble::Unauthorized),
        ("failed to resolve reference \"e.com/a:1\": e.com/a:1: not found", PullTrouble::NotFound),
        ("manifest unknown", PullTrouble::NotFound),
        ("name unknown: repository name not known to registry", PullTrouble::NotFound),
        ("429 Too Many Requests: toomanyrequests", PullTrouble::TooMany),
        ("no match for platform in manifest", PullTrouble::Platform),
        ("write /var/lib: no space left on device", PullTrouble::DiskFull),
        ("pull QPS exceeded", PullTrouble::OwnLimit),
        (
            "cannot use the image pull secret ns/login: .dockercfg: the auth of 401.io is not base64 \
             of user:password",
            PullTrouble::PullSecret,
        ),
        ("gremlins", PullTrouble::Other),
    ];
    let mut advice = BTreeSet::new();
    for (message, trouble) in table {
        assert_eq!(classify(message), trouble, "{message}");
        let case = Case::waiting("ImagePullBackOff", message, json!({"image": "e.com/a:1"}));
        let found = case.explain();
        has(&case.text(), &["What you can do", "cannot be pulled"]);
        advice.insert(found.advice);
    }
    assert_eq!(advice.len(), 12, "each trouble has advice of its own");
}

#[test]
fn an_image_that_may_be_here_need_not_be_asked_for() {
    let text = |policy: &str| {
        let app = json!({"image": "busybox", "imagePullPolicy": policy});
        Case::waiting("ErrImagePull", "dial tcp 1.2.3.4:443: i/o timeout", app).text()
    };
    has(&text("Always"), &["If this node has the image already", "IfNotPresent"]);
    assert!(!text("IfNotPresent").contains("If this node has the image already"));
}

#[test]
fn a_malformed_pull_secret_is_not_blamed_on_the_registry() {
    let message = "cannot use the image pull secret ns/login: .dockerconfigjson: not a docker \
                   configuration: line 1, column 1";
    let case = Case::waiting("ErrImagePull", message, json!({"image": "e.com/a:1"}));
    let text = case.text();
    has(&text, &["imagePullSecrets cannot be read", "ns/login", "Correct the Secret"]);
    assert!(!text.contains("crictl"), "{text}");
}

#[test]
fn a_credential_provider_that_failed_is_told_of() {
    let message = "unexpected status code 401 Unauthorized; no login from credential provider \
                   giver: cannot run /p/giver: connection refused";
    assert_eq!(classify(message), PullTrouble::Unauthorized);
    let case = Case::waiting("ErrImagePull", message, json!({"image": "e.com/a:1"}));
    let advice = case.explain().advice;
    assert!(advice[0].starts_with("The credential provider giver gave no login"), "{advice:?}");
    assert!(advice[1].starts_with("Check the spelling"), "{advice:?}");
}

#[test]
fn an_image_of_a_volume_is_told_from_the_containers_own() {
    let container =
        json!({"image": "r.io/data", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let message = |image: &str| format!("Back-off pulling image {image:?}: ErrImagePull: gremlins");
    let text = |image: &str| {
        let mut case = Case::waiting("ImagePullBackOff", &message(image), container.clone());
        let volumes = json!([{"name": "v", "image": {"reference": "r.io/data-of-old"}},
                             {"name": "w", "image": {"reference": "r.io/other"}}]);
        case.pod.spec.as_mut().unwrap().volumes = serde_json::from_value(volumes).unwrap();
        case.text()
    };
    has(&text("r.io/data"), &["The image of app cannot be pulled", "crictl pull r.io/data`"]);
    has(
        &text("r.io/data-of-old"),
        &["The image of app's volume v cannot be pulled", "crictl pull r.io/data-of-old`"],
    );
    has(&text("r.io/other"), &["The image of app cannot be pulled"]);
}

#[test]
fn a_pull_that_is_tried_again_says_how_far_it_is() {
    let message = "Back-off pulling image \"e.com/a:1\": ErrImagePull: manifest unknown";
    let mut case = Case::waiting("ImagePullBackOff", message, json!({"image": "e.com/a:1"}));
    let progress = PullProgress { done: 1_000_000, total: 2_500_000 };
    let state = PullState::Running(Some(progress));
    let mut call = Doing::new("PullImage e.com/a:1", Mono::default());
    call.pull = Some(Pull { image: "e.com/a:1".to_owned(), state });
    case.progress = Some(Progress { calls: [(0, call)].into(), ..Progress::default() });
    has(
        &case.text(),
        &[
            "The image of app is pulled again: 1.0 MB of 2.5 MB.",
            "manifest unknown",
            "1. Nothing yet",
        ],
    );
    // Another image is no news of this one.
    case.pod.spec.as_mut().unwrap().containers[0].image = Some("e.com/b:1".to_owned());
    has(&case.text(), &["cannot be pulled"]);
}

#[test]
fn names_are_read_as_runtimes_read_them() {
    assert_eq!(registry("busybox"), "docker.io");
    assert_eq!(registry("library/busybox:1"), "docker.io");
    assert_eq!(registry("localhost/a"), "localhost");
    assert_eq!(registry("r.io:5000/a/b"), "r.io:5000");
    assert!(name_problem("https://r.io/a").contains("https://"));
    assert!(name_problem("r.io/Web").contains("upper-case"));
    assert!(name_problem("a b").contains("space"));
    assert!(name_problem("web:").contains("tag"));
    assert!(name_problem("web//x").contains('/'));
}
