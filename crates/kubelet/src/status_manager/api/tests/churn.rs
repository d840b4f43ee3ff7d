//! Many pods whose statuses change often, and a server that is slow.

use super::*;

const PODS: usize = 500;

/// The status after so many restarts.
fn nth(restarts: u32) -> PodStatus {
    let mut status = running("True");
    for container in status.container_statuses.iter_mut().flatten() {
        container.restart_count = i32::try_from(restarts).unwrap();
    }
    status
}

async fn many() -> (Bench, Vec<DesiredPod>) {
    let bench = Bench::new().await;
    let mut pods = Vec::new();
    for number in 0..PODS {
        pods.push(bench.pod(&format!("p{number}")).await);
    }
    (bench, pods)
}

/// How many of the pods show this many restarts at the server.
async fn shown(bench: &Bench, restarts: u32) -> usize {
    let list = bench.api.api.call(Call::get("/api/v1/pods")).await.unwrap();
    let restarted =
        |pod: &&Value| pod["status"]["containerStatuses"][0]["restartCount"] == restarts;
    list["items"].as_array().unwrap().iter().filter(restarted).count()
}

#[tokio::test(start_paused = true)]
async fn a_change_of_each_pod_costs_a_patch_of_each() {
    let (bench, pods) = many().await;
    for change in 0..6 {
        for pod in &pods {
            bench.statuses.set(pod, nth(change));
        }
        bench.settle().await;
        assert_eq!(bench.writes() as usize, PODS, "change {change}");
        assert_eq!(shown(&bench, change).await, PODS, "change {change}");
    }
    // One pod's change is no other's.
    bench.statuses.set(&pods[7], nth(9));
    bench.settle().await;
    assert_eq!((bench.writes(), shown(&bench, 9).await), (1, 1));
    assert!(bench.api.together_max.load(Ordering::SeqCst) as usize <= REQUESTS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_spared_what_is_out_of_date() {
    let (bench, pods) = many().await;
    bench.api.delay_ms.store(2000, Ordering::SeqCst);
    for change in 0..20 {
        for pod in &pods {
            bench.statuses.set(pod, nth(change));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // Those on their way were right when they began; each pod needs one more at most.
    let written = bench.writes() as usize;
    assert!(written <= 10 * REQUESTS_MAX + REQUESTS_MAX, "{written} in twenty seconds");
    tokio::time::sleep(Duration::from_secs(300)).await;
    let rest = bench.writes() as usize;
    assert!(rest <= PODS, "{rest} for {PODS} pods");
    assert_eq!(shown(&bench, 19).await, PODS);
}

#[tokio::test(start_paused = true)]
async fn pods_that_never_rest_leave_the_others_their_turn() {
    let (bench, pods) = many().await;
    bench.api.delay_ms.store(2000, Ordering::SeqCst);
    // A round takes as long as it takes to write them all, and each changes meanwhile.
    let round = 2 * PODS.div_ceil(REQUESTS_MAX) as u32;
    for change in 0..round + 10 {
        for pod in &pods {
            bench.statuses.set(pod, nth(change));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let written: BTreeSet<String> = std::mem::take(&mut *bench.api.paths.lock().unwrap());
    assert_eq!(written.len(), PODS, "others waited in vain");
}
