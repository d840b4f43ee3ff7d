//! `/healthz`: whether the node does what it should.
//!
//! Upstream: apiserver pkg/server/healthz.

use hyper::StatusCode;
use hyper::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};

use crate::answer::{Reply, error, text, unknown_path};
use crate::listen::Shared;
use crate::routes::Query;

/// All checks together; why one fails is only told where each is asked alone.
pub(crate) async fn all(shared: &Shared, query: &Query) -> Reply {
    let mut unknown: Vec<&str> = Vec::new();
    for name in query.all("exclude") {
        if !unknown.contains(&name) {
            unknown.push(name);
        }
    }
    let (mut output, mut failed) = (String::new(), false);
    for check in names(shared) {
        if let Some(at) = unknown.iter().position(|name| *name == check) {
            unknown.remove(at);
            output.push_str(&format!("[+]{check} excluded: ok\n"));
            continue;
        }
        let checked = run(shared, check).await;
        shared.slis.note(check, checked.is_ok());
        match checked {
            Ok(()) => output.push_str(&format!("[+]{check} ok\n")),
            Err(why) => {
                tracing::info!(check, why, "a health check fails");
                failed = true;
                output.push_str(&format!("[-]{check} failed: reason withheld\n"));
            }
        }
    }
    if !unknown.is_empty() {
        unknown.sort_unstable();
        let quoted: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let quoted = quoted.join(",");
        output.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {quoted}\n"
        ));
    }
    if failed {
        output.push_str("healthz check failed");
        return error(StatusCode::INTERNAL_SERVER_ERROR, &output);
    }
    let body = if query.has("verbose") { output + "healthz check passed\n" } else { "ok".into() };
    let mut reply = text(StatusCode::OK, body);
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

/// One check.
pub(crate) async fn one(shared: &Shared, check: &str) -> Reply {
    if !names(shared).contains(&check) {
        return unknown_path();
    }
    match run(shared, check).await {
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(why) => {
            error(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
        }
    }
}

/// Is there such a check?
pub(crate) fn is_known(shared: &Shared, check: &str) -> bool {
    names(shared).contains(&check)
}

fn names(shared: &Shared) -> Vec<&'static str> {
    shared.entrance.checks(shared.view.health_checks())
}

async fn run(shared: &Shared, check: &str) -> Result<(), String> {
    if check == "ping" { Ok(()) } else { shared.view.health(check).await }
}
