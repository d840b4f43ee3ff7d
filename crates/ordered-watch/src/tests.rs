//! What readers see, and in which order they wake.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt;

use super::*;

/// Notes its number when it is woken.
struct Noted(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[test]
fn readers_wake_in_the_order_they_came() {
    let (sender, first) = channel(0);
    let mut readers: Vec<Receiver<i32>> = (0..40).map(|_| first.clone()).collect();
    let woken = Arc::new(Mutex::new(Vec::new()));
    for (number, reader) in readers.iter_mut().enumerate().rev() {
        let waker = Waker::from(Arc::new(Noted(number, Arc::clone(&woken))));
        assert!(reader.poll_changed(&Context::from_waker(&waker)).is_pending());
    }
    sender.send_replace(1);
    assert_eq!(*woken.lock().unwrap(), (0..40).collect::<Vec<usize>>());
}

#[test]
fn a_value_is_new_once_to_each_reader() {
    let (sender, mut one) = channel("a");
    assert!(one.changed().now_or_never().is_none(), "the first value is nothing new");
    sender.send_replace("b");
    sender.send_replace("c");
    let mut late = sender.subscribe();
    assert!(late.changed().now_or_never().is_none());
    assert_eq!(one.changed().now_or_never(), Some(Ok(())));
    assert_eq!(*one.borrow(), "c");
    assert!(one.changed().now_or_never().is_none());
    late.mark_changed();
    assert_eq!(late.changed().now_or_never(), Some(Ok(())));
    assert!(!sender.send_if_modified(|_| false));
    assert!(one.changed().now_or_never().is_none(), "told of no change");
}

#[test]
fn whoever_waits_for_a_value_gets_it_or_hears_that_none_will_come() {
    let (sender, mut reader) = channel(1);
    assert_eq!(reader.wait_for(|value| *value == 1).now_or_never().unwrap().as_deref(), Ok(&1));
    assert!(reader.wait_for(|value| *value == 2).now_or_never().is_none());
    sender.send_replace(2);
    drop(sender);
    assert_eq!(reader.wait_for(|value| *value == 2).now_or_never().unwrap().as_deref(), Ok(&2));
    assert!(reader.wait_for(|value| *value == 3).now_or_never().unwrap().is_err());
    assert_eq!(reader.changed().now_or_never(), Some(Err(Closed)));
}

#[test]
fn one_who_gave_up_is_not_woken() {
    let (sender, reader) = channel(0);
    let woken = Arc::new(Mutex::new(Vec::new()));
    let mut gone = reader.clone();
    let waker = Waker::from(Arc::new(Noted(7, Arc::clone(&woken))));
    assert!(gone.poll_changed(&Context::from_waker(&waker)).is_pending());
    drop(gone);
    sender.send_replace(1);
    assert!(woken.lock().unwrap().is_empty());
}
