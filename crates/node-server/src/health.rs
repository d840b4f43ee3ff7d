//! `/healthz`: whether the node does what it should.
//!
//! Upstream: apiserver pkg/server/healthz.

use hyper::StatusCode;
use hyper::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};

use crate::answer::{Reply, error, text, unknown_path};
use crate::routes::Query;
use crate::slis::Slis;
use crate::view::NodeView;

/// All checks together; why one fails is only told where each is asked alone.
pub(crate) async fn all(view: &dyn NodeView, slis: &Slis, query: &Query) -> Reply {
    let mut unknown: Vec<&str> = Vec::new();
    for name in query.all("exclude") {
        if !unknown.contains(&name) {
            unknown.push(name);
        }
    }
    let (mut output, mut failed) = (String::new(), false);
    for check in names(view) {
        if let Some(at) = unknown.iter().position(|name| *name == check) {
            unknown.remove(at);
            output.push_str(&format!("[+]{check} excluded: ok\n"));
            continue;
        }
        let checked = run(view, check).await;
        slis.note(check, checked.is_ok());
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
pub(crate) async fn one(view: &dyn NodeView, check: &str) -> Reply {
    if !names(view).contains(&check) {
        return unknown_path();
    }
    match run(view, check).await {
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(why) => {
            error(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {why}"))
        }
    }
}

/// Is there such a check?
pub(crate) fn is_known(view: &dyn NodeView, check: &str) -> bool {
    names(view).contains(&check)
}

fn names(view: &dyn NodeView) -> Vec<&'static str> {
    let mut names = vec!["ping"];
    names.extend(view.health_checks());
    names
}

async fn run(view: &dyn NodeView, check: &str) -> Result<(), String> {
    if check == "ping" { Ok(()) } else { view.health(check).await }
}
