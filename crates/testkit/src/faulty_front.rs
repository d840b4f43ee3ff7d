//! Faults in front of the small API server, and a count of what it is asked.
//!
//! Owns the fault that is in force and the counts. A change of the fault ends every
//! watch, as a server that breaks or mends itself does. Speaks the server's own types:
//! it is put around the handler, so TLS and connections are real.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use apiserver::http_api::Response;
use apiserver::serve::Handler;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::api_server::Faults;

/// What is wrong with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It answers with this code: 409 to who writes, 410 to who reads, any other to
    /// everybody. 429 asks to wait a second.
    Answers(u16),
    /// It ends watches after this long.
    CutsWatches(Duration),
    /// It takes every request, and answers none until that is over.
    Silent,
}

/// A front that can be told to misbehave. Cheap to clone.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

struct Inner {
    fault: watch::Sender<Fault>,
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Default for Front {
    fn default() -> Self {
        let fault = watch::channel(Fault::None).0;
        Self(Arc::new(Inner { fault, asked: Mutex::default() }))
    }
}

impl Front {
    /// What is put around the server's handler.
    pub fn faults(&self) -> Faults {
        let front = self.clone();
        Arc::new(move |handler| {
            let front = front.clone();
            Arc::new(move |head: Parts, body, peer| {
                let (front, handler) = (front.clone(), Handler::clone(&handler));
                Box::pin(async move {
                    let is_watch = front.note(&head);
                    if let Some(refusal) = front.refusal(&head.method) {
                        return refusal;
                    }
                    // Before the answer, so that no change goes unnoticed.
                    let mut fault = front.0.fault.subscribe();
                    while *fault.borrow_and_update() == Fault::Silent {
                        if fault.changed().await.is_err() {
                            break;
                        }
                    }
                    let answer = handler(head, body, peer).await;
                    if is_watch { cut(answer, fault) } else { answer }
                })
            })
        })
    }

    /// From now on this is wrong, and nothing else.
    pub fn set(&self, fault: Fault) {
        self.0.fault.send_replace(fault);
    }

    /// What was asked since the last time, and how often.
    pub fn take_asked(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.asked())
    }

    /// Counts a request; tells whether it is a watch.
    fn note(&self, head: &Parts) -> bool {
        let query = head.uri.query().unwrap_or_default();
        let is_watch = query.split('&').any(|part| matches!(part, "watch=true" | "watch=1"));
        let verb = if is_watch { "WATCH" } else { head.method.as_str() };
        let what = format!("{verb} {}", head.uri.path());
        *self.asked().entry(what).or_default() += 1;
        is_watch
    }

    fn refusal(&self, method: &Method) -> Option<Response> {
        let Fault::Answers(code) = *self.0.fault.borrow() else { return None };
        let reads = method == Method::GET;
        let (concerned, reason) = match code {
            409 => (!reads, "Conflict"),
            410 => (reads, "Expired"),
            401 => (true, "Unauthorized"),
            429 => (true, "TooManyRequests"),
            _ => (true, "InternalError"),
        };
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "as the test wants it", "reason": reason, "code": code});
        let mut answer = Response::new(Full::new(Bytes::from(status.to_string())).boxed_unsync());
        *answer.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
        let headers = answer.headers_mut();
        headers.insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
        if code == 429 {
            headers.insert("retry-after", hyper::header::HeaderValue::from_static("1"));
        }
        concerned.then_some(answer)
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.asked.lock().expect("front lock: no code panics while holding it")
    }
}

/// A watch that ends when the fault says so, or changes.
fn cut(answer: Response, fault: watch::Receiver<Fault>) -> Response {
    let end = match *fault.borrow() {
        Fault::CutsWatches(after) => Some(Instant::now() + after),
        _ => None,
    };
    let (head, body) = answer.into_parts();
    let frames = stream::unfold((body, fault), move |(mut body, mut fault)| async move {
        let frame = tokio::select! { biased;
            _ = fault.changed() => None,
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => None,
            frame = body.frame() => frame,
        };
        frame.map(|frame: Result<Frame<Bytes>, _>| (frame, (body, fault)))
    });
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use api_client::Call;

    use super::*;
    use crate::api_server::{ApiOptions, TestApi};
    use crate::https_client;

    #[test]
    fn it_refuses_what_it_is_told_to_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let front = Front::default();
        let faults = Some(front.faults());
        let api = TestApi::start(dir.path(), ApiOptions { faults, ..Default::default() }).unwrap();
        let port = api.url().rsplit(':').next().unwrap().parse().unwrap();
        let issued = api.authority().client("a", Some("system:masters"), jiff::Timestamp::now());
        let issued = issued.unwrap();
        let who = Some((issued.certificate.as_str(), issued.key.as_str()));
        let get = |path: &str| https_client::ask(port, "GET", path, who, None).unwrap().status;
        assert_eq!(get("/api/v1/pods"), 200);
        for code in [500, 429, 410] {
            front.set(Fault::Answers(code));
            assert_eq!(get("/api/v1/pods"), code);
        }
        front.set(Fault::Answers(409));
        assert_eq!(get("/api/v1/nodes"), 200, "only who writes has a conflict");
        front.set(Fault::CutsWatches(Duration::from_millis(50)));
        assert_eq!(get("/api/v1/pods?watch=true"), 200, "it ends");
        front.set(Fault::Silent);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| get("/api/v1/services"));
            while !front.asked().contains_key("GET /api/v1/services") {
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!late.is_finished(), "it is not answered");
            front.set(Fault::None);
            assert_eq!(late.join().unwrap(), 200, "until that is over");
        });
        let asked = front.take_asked();
        assert_eq!((asked["GET /api/v1/pods"], asked["WATCH /api/v1/pods"]), (4, 1));
        assert!(front.take_asked().is_empty());
        // Whoever asks without a connection has no front to pass.
        front.set(Fault::Answers(500));
        assert!(api.ask(Call::get("/api/v1/pods")).is_ok());
    }
}
