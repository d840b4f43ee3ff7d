//! Ports without TLS: what anybody may see, and clients that mean no good.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use node_server::ConnectionLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::world::{Plain, Setup, Told, World, request, tell};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const BOTH: [Plain; 2] = [Plain::Open, Plain::Health];

async fn get(world: &World, path: &str) -> Told {
    let stream = world.tcp(HERE).await.unwrap();
    tell(stream, request("GET", path, &[])).await
}

async fn world(plain: Plain) -> World {
    let connections = ConnectionLimits { total: 60, per_peer: 40 };
    World::start(Setup { plain: Some(plain), connections, ..Setup::default() }).await
}

#[tokio::test]
async fn anybody_sees_what_is_not_for_debugging() {
    let world = world(Plain::Open).await;
    for path in ["/pods", "/stats/summary"] {
        get(&world, path).await.is(200, "{}");
    }
    for path in ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes"] {
        get(&world, path).await.is(200, "up 1\n");
    }
    get(&world, "/healthz").await.is(200, "ok");
    get(&world, "/healthz/syncloop").await.is(200, "ok");
    let verbose = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
    get(&world, "/healthz?verbose").await.is(200, verbose);
    let slis = get(&world, "/metrics/slis").await;
    assert!(slis.body.contains("kubernetes_healthcheck{name=\"syncloop\""), "{}", slis.body);
    *world.view.sick.lock().unwrap() = Some("syncloop");
    assert_eq!(get(&world, "/healthz").await.status, 500);
    for path in [
        "/run/n/p/c",
        "/exec/default/web/app",
        "/attach/default/web/app",
        "/portForward/default/web",
        "/containerLogs/default/web/app",
        "/runningpods/",
        "/logs/",
        "/debug/pprof/heap",
    ] {
        get(&world, path).await.is(405, "Debug endpoints are disabled.\n");
    }
    for path in ["/configz", "/statusz", "/flagz", "/checkpoint/n/p/c", "/debug/flags/v", "/"] {
        assert_eq!(get(&world, path).await.status, 404, "{path}");
    }
    world.check_panics();
}

#[tokio::test]
async fn the_port_of_health_has_nothing_else() {
    let world = world(Plain::Health).await;
    *world.view.sick.lock().unwrap() = Some("syncloop");
    get(&world, "/healthz").await.is(200, "ok");
    get(&world, "/healthz/ping").await.is(200, "ok");
    get(&world, "/healthz?verbose").await.is(200, "[+]ping ok\nhealthz check passed\n");
    for path in ["/pods", "/metrics", "/metrics/slis", "/exec/n/p/c", "/healthz/syncloop", "/"] {
        assert_eq!(get(&world, path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn those_who_say_nothing_keep_nobody_from_asking() {
    for plain in BOTH {
        let world = world(plain).await;
        let mut first = world.tcp(HERE).await.unwrap();
        let mut silent = VecDeque::new();
        for n in 0..1000u32 {
            let mut one = world.tcp(HERE).await.unwrap();
            // Half of them begin a request that they never end.
            if n % 2 == 0 {
                one.write_all(b"GET /healthz HTTP/1.1\r\nhost").await.unwrap();
            }
            silent.push_back(one);
            // Those before were evicted long ago; this process has few descriptors.
            if silent.len() > 100 {
                silent.pop_front();
            }
            if n % 100 == 99 {
                get(&world, "/healthz").await.is(200, "ok");
            }
        }
        let mut byte = [0];
        assert_eq!(first.read(&mut byte).await.unwrap(), 0, "{plain:?}");
        let last = silent.back_mut().unwrap();
        let waits = timeout(Duration::from_millis(50), last.read(&mut byte)).await;
        assert!(waits.is_err(), "{plain:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_that_comes_byte_by_byte_is_too_slow() {
    for plain in BOTH {
        let world = world(plain).await;
        let mut stream = world.tcp(HERE).await.unwrap();
        let begun = Instant::now();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
        while stream.write_all(b"y").await.is_ok() {
            let mut byte = [0];
            match timeout(Duration::from_secs(1), stream.read(&mut byte)).await {
                Err(_) => {}
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(_)) => panic!("it was answered"),
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{plain:?}: still open");
        }
        assert!(begun.elapsed() >= Duration::from_secs(15), "{plain:?}");
    }
}
