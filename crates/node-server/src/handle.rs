//! Answers requests: first who asks, then whether they may, then what they asked for.
//!
//! Upstream: pkg/kubelet/server/server.go.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use tokio::time::timeout;

use crate::answer::{self, Reply};
use crate::auth::{ANONYMOUS, Credentials, Refusal, Stranger, attributes, verb};
use crate::connection::Peer;
use crate::listen::Shared;
use crate::routes::{self, Names, Path, Query, Route, route};
use crate::view::{Answer, ContainerRef, Content, Page, PodFacts, ViewError};
use crate::{health, log_options, node_logs, slots, streams};

/// Bytes of a body: a form, or a number.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time for a body to arrive.
const BODY_LIMIT: Duration = Duration::from_secs(20);

/// Answers one request.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Reply {
    let path = match routes::read(request.uri().path()) {
        Path::Clean(path) => path,
        Path::Moved(path) => return moved(&request, &path),
        Path::Bad => return answer::bad_request(),
    };
    let found = route(request.method(), &path, &shared.handlers);
    let found = shared.entrance.narrow(found);
    match found {
        Route::Unknown => return answer::unknown_path(),
        Route::Slash => return moved(&request, &routes::encode(&format!("{path}/"))),
        Route::HealthOf(check) if !health::is_known(shared, check) => {
            return answer::unknown_path();
        }
        _ => {}
    }
    let (mut head, body) = request.into_parts();
    if let Err(refused) = admit(shared, peer, &mut head, &path).await {
        return refused;
    }
    serve(shared, peer, found, Request::from_parts(head, body)).await
}

fn moved(request: &Request<Incoming>, path: &str) -> Reply {
    match request.uri().query() {
        Some(query) => answer::moved(&format!("{path}?{query}")),
        None => answer::moved(path),
    }
}

/// Finds out who asks, and whether they may.
async fn admit(shared: &Shared, peer: &Peer, head: &mut Parts, path: &str) -> Result<(), Reply> {
    let Some(guard) = shared.entrance.guard() else { return Ok(()) };
    let shown = Credentials {
        tls: &guard.tls,
        chain: &peer.chain,
        now: (shared.clock)(),
        peer: slots::peer(peer.address.ip()),
    };
    let user = match guard.authenticator.user(shown, &mut head.headers).await {
        Ok(user) => user,
        Err(Stranger::Unknown) => {
            return Err(answer::text(StatusCode::UNAUTHORIZED, "Unauthorized"));
        }
        Err(Stranger::TooMany) => {
            let why = "too many tokens from this address mean nothing; try again later";
            let why = ViewError { retry_after: Some(1), ..ViewError::new(429, why) };
            return Err(answer::refused(&why));
        }
    };
    if user.name != ANONYMOUS {
        peer.ticket.prove();
    }
    let verb = verb(&head.method, path, guard.create_for_streams);
    match guard.authorizer.allow(&user, verb, attributes(path)).await {
        Ok(()) => Ok(()),
        Err(Refusal::Denied(text)) => Err(answer::text(StatusCode::FORBIDDEN, text)),
        Err(Refusal::Unknown(text)) => Err(answer::text(StatusCode::INTERNAL_SERVER_ERROR, text)),
    }
}

async fn serve(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    found: Route<'_>,
    request: Request<Incoming>,
) -> Reply {
    let view = &*shared.view;
    let query = Query::read(request.uri().query().unwrap_or_default());
    let served = match found {
        Route::Health => return health::all(shared, &query).await,
        Route::Slis => return shared.slis.serve(request.method(), shared.started),
        Route::HealthOf(check) => return health::one(shared, check).await,
        Route::Page(page) => self::page(shared, page, query, request).await,
        Route::ContainerLogs(names) => container_logs(shared, &names, &query).await,
        Route::Run(names) => run(shared, &names, query, request).await,
        Route::Checkpoint(names) => checkpoint(shared, &names, &query).await,
        Route::NodeLogs(path) => return node_logs::serve(shared, path, &query, request).await,
        Route::Profile(name) => {
            view.profile(name, request.uri().query().unwrap_or_default()).await.map(answer::content)
        }
        Route::Verbosity => verbosity(shared, request).await,
        Route::Exec(names) => return streams::exec(shared, peer, &names, &query, request).await,
        Route::Attach(names) => {
            return streams::attach(shared, peer, &names, &query, request).await;
        }
        Route::PortForward(names) => {
            return streams::port_forward(shared, peer, &names, &query, request).await;
        }
        Route::Disabled(why) => return answer::error(StatusCode::METHOD_NOT_ALLOWED, why),
        Route::Nothing => return answer::no_route(),
        Route::NoMethod(allowed) => return answer::no_method(allowed),
        Route::Slash | Route::Unknown => return answer::unknown_path(),
    };
    served.unwrap_or_else(|why| answer::refused(&why))
}

/// Pages whose service makes nothing but JSON.
fn json_only(page: Page) -> bool {
    matches!(page, Page::Pods | Page::RunningPods | Page::Summary { .. })
}

fn accepts_json(accept: &str) -> bool {
    let mut kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    accept.is_empty() || kinds.any(|kind| matches!(kind, "*/*" | "application/json"))
}

async fn page(
    shared: &Shared,
    page: Page,
    query: Query,
    request: Request<Incoming>,
) -> Result<Reply, ViewError> {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let accept = accept.unwrap_or_default().to_owned();
    if json_only(page) && !accepts_json(&accept) {
        let why = "406: Not Acceptable\n\nAvailable representations: application/json";
        return Err(ViewError::new(406, why));
    }
    let page = match page {
        Page::Summary { .. } => {
            let form = with_form(query, request).await?;
            let mut values = form.all("only_cpu_and_memory");
            // Exactly once, as upstream wants it.
            let only_cpu_and_memory = values.next() == Some("true") && values.next().is_none();
            Page::Summary { only_cpu_and_memory }
        }
        page => page,
    };
    let shown = shared.view.page(page, &accept).await;
    if let (Page::Summary { .. }, Err(error)) = (page, &shown)
        && error.status == 500
    {
        return Err(ViewError::new(500, format!("Internal Error: {}", error.message)));
    }
    shown.map(answer::content)
}

/// The values of a query, and of the form in a body if there is one.
async fn with_form(query: Query, request: Request<Incoming>) -> Result<Query, ViewError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if request.method() != Method::POST || kind != "application/x-www-form-urlencoded" {
        return Ok(query);
    }
    Ok(query.with_form(&body(request).await?))
}

async fn body(request: Request<Incoming>) -> Result<String, ViewError> {
    let limited = Limited::new(request.into_body(), BODY_BYTES_MAX);
    let body = match timeout(BODY_LIMIT, limited.collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(ViewError::new(413, "http: request body too large"));
        }
        Ok(Err(_)) => return Err(ViewError::new(400, "the body broke off")),
        Err(_) => return Err(ViewError::new(408, "the body took too long to arrive")),
    };
    String::from_utf8(body.into()).map_err(|_| ViewError::new(400, "the body is not text"))
}

pub(crate) fn container_of(names: &Names<'_>) -> ContainerRef {
    ContainerRef {
        namespace: names.namespace.to_owned(),
        pod: names.pod.to_owned(),
        uid: names.uid.map(str::to_owned),
        container: names.container.to_owned(),
    }
}

pub(crate) async fn pod_of(shared: &Shared, names: &Names<'_>) -> Result<PodFacts, ViewError> {
    let pod = shared.view.pod(names.namespace, names.pod).await;
    pod.ok_or_else(|| ViewError::new(404, "pod does not exist"))
}

async fn container_logs(
    shared: &Shared,
    names: &Names<'_>,
    query: &Query,
) -> Result<Reply, ViewError> {
    let options = log_options::read(query, shared.handlers.split_log_streams)?;
    let pod = shared
        .view
        .pod(names.namespace, names.pod)
        .await
        .ok_or_else(|| ViewError::new(404, format!("pod {:?} does not exist", names.pod)))?;
    if !pod.containers.iter().any(|name| name == names.container) {
        let why = format!("container {:?} not found in pod {:?}", names.container, names.pod);
        return Err(ViewError::new(404, why));
    }
    let chunks = shared.view.logs(container_of(names), options).await?;
    let content_type = "text/plain; charset=utf-8";
    let content = Content::Chunks(chunks);
    Ok(answer::content(Answer { content_type, content, warning: None }))
}

async fn run(
    shared: &Shared,
    names: &Names<'_>,
    query: Query,
    request: Request<Incoming>,
) -> Result<Reply, ViewError> {
    pod_of(shared, names).await?;
    let form = with_form(query, request).await?;
    let command = form.get("cmd").split(' ').map(str::to_owned).collect();
    let output = shared.view.run(container_of(names), command).await?;
    Ok(answer::json(output))
}

async fn checkpoint(shared: &Shared, names: &Names<'_>, query: &Query) -> Result<Reply, ViewError> {
    let pod = pod_of(shared, names).await?;
    if !pod.containers.iter().any(|name| name == names.container) {
        let why = format!("container {} does not exist", names.container);
        return Err(ViewError::new(404, why));
    }
    let timeout = match query.all("timeout").last() {
        None => None,
        Some(text) => Some(
            text.parse::<i64>()
                .map_err(|_| ViewError::new(404, "cannot parse value of timeout parameter"))?,
        ),
    };
    let saved = shared.view.checkpoint(container_of(names), timeout).await;
    let path = saved.map_err(|error| {
        let Names { namespace, pod, container, .. } = names;
        let message = error.message;
        let message = format!("checkpointing of {namespace}/{pod}/{container} failed ({message})");
        ViewError { message, ..error }
    })?;
    Ok(answer::json(serde_json::json!({"items": [path]}).to_string()))
}

async fn verbosity(shared: &Shared, request: Request<Incoming>) -> Result<Reply, ViewError> {
    if request.method() != Method::PUT {
        return Ok(answer::error(StatusCode::NOT_ACCEPTABLE, "unsupported http method"));
    }
    let level = body(request).await?;
    match shared.view.set_verbosity(&level).await {
        Ok(said) => Ok(answer::error(StatusCode::OK, &said)),
        Err(why) if why.status == 400 => Ok(answer::error(StatusCode::BAD_REQUEST, &why.message)),
        Err(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_for_whoever_takes_it() {
        for (accept, takes) in [
            ("", true),
            ("*/*", true),
            ("application/json", true),
            ("text/html, application/json;q=0.9", true),
            ("text/html,*/*;q=0.1", true),
            ("text/plain", false),
        ] {
            assert_eq!(accepts_json(accept), takes, "{accept}");
        }
    }
}
