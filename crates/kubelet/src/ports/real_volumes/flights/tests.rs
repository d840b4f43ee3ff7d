//! Work that hangs, walks that take long, and how much is begun.

use std::sync::mpsc;

use tokio::time::timeout;

use super::*;

fn impatient() -> Flights {
    Flights { patience: Duration::from_millis(50), ..Flights::default() }
}

fn place(path: &Path) -> Place {
    Place { path: path.to_owned(), beside: false }
}

#[tokio::test]
async fn work_that_hangs_is_not_begun_twice() {
    let patience = Duration::from_millis(50);
    let host = Flights { patience, ..Flights::default() };
    let path = Path::new("/somewhere");
    let (release, held) = mpsc::channel::<()>();
    let slow = move || {
        held.recv().ok();
        Ok(7_u32)
    };
    let twice = || -> Result<u32, VolumeError> { panic!("begun twice") };
    let error = host.run(path, "slow".to_owned(), slow).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "slow /somewhere is still under way after 0 s; if it lasts, look at the disk or \
         server behind it"
    );
    assert_eq!(host.run(path, "slow".to_owned(), twice).await, Err(error.clone()));
    let other = host.run(path, "other".to_owned(), || Ok(1_u8)).await;
    assert_eq!(other, Err(error), "one after another");
    let patient = Flights { patience: PATIENCE, ..host.clone() };
    let ask = patient.run(path, "slow".to_owned(), twice);
    let land = async { release.send(()).unwrap() };
    assert_eq!(tokio::join!(ask, land).0, Ok(7));
    assert_eq!(host.run(path, "other".to_owned(), || Ok(1_u8)).await, Ok(1));
}

#[tokio::test]
async fn an_answer_from_before_the_question_is_not_given() {
    let host = impatient();
    let path = Path::new("/somewhere");
    let (release, held) = mpsc::channel::<()>();
    let slow = move || {
        held.recv().ok();
        Ok("of yesterday")
    };
    let hung = host.run(path, "looking".to_owned(), slow).await;
    assert!(matches!(hung, Err(VolumeError::UnderWay { .. })), "{hung:?}");
    let mut landed = host.lock().by_place[&place(path)].answer.clone();
    release.send(()).unwrap();
    landed.wait_for(Option::is_some).await.unwrap();
    let fresh = host.run(path, "looking".to_owned(), || Ok("of today")).await;
    assert_eq!(fresh, Ok("of today"));
    assert!(host.lock().by_place.is_empty(), "nothing is kept");
}

#[tokio::test]
async fn what_panicked_unheard_is_done_again() {
    let host = impatient();
    let path = Path::new("/somewhere");
    let (release, held) = mpsc::channel::<()>();
    let breaks = move || -> Result<u8, VolumeError> {
        held.recv().ok();
        panic!("as the test wants")
    };
    assert!(host.run(path, "breaking".to_owned(), breaks).await.is_err());
    let mut landed = host.lock().by_place[&place(path)].answer.clone();
    drop(release);
    assert!(landed.wait_for(Option::is_some).await.is_err());
    assert_eq!(host.run(path, "breaking".to_owned(), || Ok(3_u8)).await, Ok(3));
}

#[tokio::test]
async fn work_that_panics_is_told() {
    let host = Flights::default();
    let work = || -> Result<(), VolumeError> { panic!("as the test wants") };
    let error = host.run(Path::new("/x"), "breaking".to_owned(), work).await.unwrap_err();
    assert_eq!(error.to_string(), "breaking /x ended without an answer; the log says more");
}

/// A walk that takes a step whenever it is told to, and ends when nobody tells.
fn steps() -> (mpsc::Sender<()>, impl FnOnce(&AtomicU64) -> Result<u64, VolumeError>) {
    let (step, told) = mpsc::channel::<()>();
    let walk = move |steps: &AtomicU64| {
        while told.recv().is_ok() {
            steps.fetch_add(1, Ordering::Relaxed);
        }
        Ok(steps.load(Ordering::Relaxed))
    };
    (step, walk)
}

#[tokio::test]
async fn a_walk_is_waited_for_as_long_as_it_gets_on() {
    let flights = Flights { patience: Duration::from_secs(1), ..Flights::default() };
    let (path, visited) = (Path::new("/volume"), AtomicU64::new(0));
    let (step, walk) = steps();
    let goes_on = async {
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            step.send(()).unwrap();
        }
        drop(step);
    };
    let asked = flights.fly(Manner::Walk(&visited), path, "walking".to_owned(), walk);
    assert_eq!(tokio::join!(asked, goes_on).0, Ok(8), "it took longer than the patience");
    assert!(visited.load(Ordering::Relaxed) > 0, "nobody heard of it");
}

#[tokio::test]
async fn a_walk_that_halts_is_not_begun_again() {
    let (flights, path) = (impatient(), Path::new("/volume"));
    let (visited, what) = (AtomicU64::new(0), || "walking".to_owned());
    let again = |_: &AtomicU64| -> Result<u64, VolumeError> { panic!("begun again") };
    let (step, walk) = steps();
    let halts = flights.fly(Manner::Walk(&visited), path, what(), walk).await;
    assert!(matches!(halts, Err(VolumeError::UnderWay { .. })), "{halts:?}");
    let looked =
        flights.fly(Manner::Look, path, "looking".to_owned(), |_: &AtomicU64| Ok(true)).await;
    assert_eq!(looked, Ok(true), "a look does not wait for it");
    let changed = flights.run(path, "changing".to_owned(), || Ok(())).await;
    assert!(matches!(changed, Err(VolumeError::UnderWay { .. })), "a change does");
    let joined = flights.fly(Manner::Walk(&visited), path, what(), again).await;
    assert!(matches!(joined, Err(VolumeError::UnderWay { .. })), "{joined:?}");
    // It ends while nobody waits.
    let mut landed = flights.lock().by_place[&place(path)].answer.clone();
    step.send(()).unwrap();
    drop(step);
    landed.wait_for(Option::is_some).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        flights.fly(Manner::Look, path, "looking".to_owned(), |_: &AtomicU64| Ok(true)).await,
        Ok(true)
    );
    assert_eq!(flights.fly(Manner::Walk(&visited), path, what(), again).await, Ok(1));
    assert!(flights.lock().by_place.is_empty(), "nothing is kept");
    let anew = flights.fly(Manner::Walk(&visited), path, what(), |_: &AtomicU64| Ok(7_u64)).await;
    assert_eq!(anew, Ok(7), "an answer is given once");
}

#[tokio::test]
async fn a_volume_that_takes_long_to_measure_is_measured_in_the_end() {
    let (flights, path) = (impatient(), Path::new("/volume"));
    let again = |_: &AtomicU64| -> Result<u64, VolumeError> { panic!("begun again") };
    let (step, walk) = steps();
    let asked = flights.fly(Manner::Measure, path, "measuring".to_owned(), walk);
    // As whoever enforces limits: it waits no longer, whether the walk gets on or not.
    assert!(timeout(Duration::from_millis(5), asked).await.is_err(), "it is under way");
    let space = flights
        .fly(Manner::Look, path, "measuring the file system of".to_owned(), |_: &AtomicU64| {
            Ok(7_u8)
        })
        .await;
    assert_eq!(space, Ok(7), "a look does not wait for it");
    let mut landed = flights.lock().by_place[&place(path)].answer.clone();
    step.send(()).unwrap();
    drop(step);
    landed.wait_for(Option::is_some).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(flights.fly(Manner::Measure, path, "measuring".to_owned(), again).await, Ok(1));
    let anew =
        flights.fly(Manner::Measure, path, "measuring".to_owned(), |_: &AtomicU64| Ok(7_u64)).await;
    assert_eq!(anew, Ok(7), "an answer is given once");
}

#[test]
fn what_was_measured_long_ago_is_measured_again() {
    let landed_at = Instant::now();
    let (_sender, answer) = watch::channel(Some(Answer { result: Arc::new(()), landed_at }));
    let flight =
        |kept| Flight { number: 1, what: String::new(), answer: answer.clone(), steps: None, kept };
    let later = |seconds| landed_at + Duration::from_secs(seconds);
    for (kept, seconds, over) in [
        (None, 0, false),
        (None, 1, true),
        (Some(MEASURED_MAX), 119, false),
        (Some(MEASURED_MAX), 121, true),
        (Some(Duration::MAX), 100_000, false),
    ] {
        assert_eq!(flight(kept).is_over(later(seconds)), over, "{kept:?} after {seconds} s");
    }
}

#[tokio::test]
async fn what_hangs_in_one_pod_leaves_room_for_others() {
    let flights = impatient();
    let of = |pod: &str, index: usize| {
        PathBuf::from(format!("/var/lib/kubelet/pods/{pod}/volumes/{index}"))
    };
    let held: Vec<_> =
        (0..UNDER_WAY_OF_POD_MAX).map(|index| flights.hold(&of("a", index))).collect();
    let error = flights.run(&of("a", 99), "mounting on".to_owned(), || Ok(())).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "mounting on /var/lib/kubelet/pods/a/volumes/99 was not begun: 32 calls of the kind are \
         under way and none has ended, the oldest: holding /var/lib/kubelet/pods/a/volumes/0; \
         look at the disks or servers behind them"
    );
    assert_eq!(flights.run(&of("b", 0), "mounting on".to_owned(), || Ok(1)).await, Ok(1));
    let patient = Flights { patience: PATIENCE, ..flights.clone() };
    let last = of("a", 99);
    let asked = patient.run(&last, "mounting on".to_owned(), || Ok(2));
    let end = async { drop(held) };
    assert_eq!(tokio::join!(asked, end).0, Ok(2), "it is begun once there is room");
}

#[tokio::test]
async fn what_hangs_leaves_threads_for_all_else() {
    let flights = impatient();
    let held: Vec<_> =
        (0..UNDER_WAY_MAX).map(|index| flights.hold(Path::new(&format!("/mnt/{index}")))).collect();
    let error = flights.run(Path::new("/x"), "binding to".to_owned(), || Ok(())).await.unwrap_err();
    assert!(matches!(error, VolumeError::Crowded { limit: UNDER_WAY_MAX, .. }), "{error}");
    assert_eq!(tokio::task::spawn_blocking(|| 7).await.unwrap(), 7);
    drop(held);
}
