//! Which handler a request is for. Pure.
//!
//! Upstream's routes are of two kinds: exact paths and trees of Go's `ServeMux`, which
//! take any method, and go-restful's services, which know methods. Upstream:
//! pkg/kubelet/server/server.go (Install…).

mod path;

use hyper::Method;

pub(crate) use path::{Path, Query, encode, read};

use crate::view::{Metrics, Page};

/// Switches of the configuration that decide which handlers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handlers {
    /// `enableDebuggingHandlers`
    pub debugging: bool,
    /// `enableSystemLogHandler`
    pub system_log: bool,
    /// `enableSystemLogQuery`
    pub system_log_query: bool,
    /// `enableProfilingHandler`
    pub profiling: bool,
    /// `enableDebugFlagsHandler`
    pub debug_flags: bool,
    /// The feature gate `ContainerCheckpoint`
    pub checkpoint: bool,
    /// The feature gate `ComponentStatusz`
    pub statusz: bool,
    /// The feature gate `ComponentFlagz`
    pub flagz: bool,
    /// The feature gate `PodLogsQuerySplitStreams`
    pub split_log_streams: bool,
    /// The feature gate `ExtendWebSocketsToKubelet`
    pub websockets: bool,
}

impl Default for Handlers {
    /// Upstream's defaults in v1.36.
    fn default() -> Self {
        Self {
            debugging: true,
            system_log: true,
            system_log_query: false,
            profiling: true,
            debug_flags: true,
            checkpoint: true,
            statusz: true,
            flagz: true,
            split_log_streams: false,
            websockets: true,
        }
    }
}

/// What a handler is told by the path: namespace, pod, uid and container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Names<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub uid: Option<&'a str>,
    pub container: &'a str,
}

/// A handler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Health,
    HealthOf(&'a str),
    Slis,
    Page(Page),
    Exec(Names<'a>),
    Attach(Names<'a>),
    Run(Names<'a>),
    PortForward(Names<'a>),
    ContainerLogs(Names<'a>),
    Checkpoint(Names<'a>),
    NodeLogs(&'a str),
    Profile(&'a str),
    Verbosity,
    /// It exists, and is switched off.
    Disabled(&'static str),
    /// There is no such thing below a path that exists.
    Nothing,
    /// It does not take this method, but these.
    NoMethod(&'static str),
    /// It is the root of a tree, without its slash.
    Slash,
    /// No handler has this path; not even a right is asked for.
    Unknown,
}

/// Paths whose slash at the end belongs to them.
const TREES: [&str; 5] = ["/stats/", "/runningpods/", "/logs/", "/checkpoint/", "/debug/pprof/"];
const DISABLED_TREES: [&str; 8] = [
    "/run/",
    "/exec/",
    "/attach/",
    "/portForward/",
    "/containerLogs/",
    "/runningpods/",
    "/debug/pprof/",
    "/logs/",
];

/// Finds the handler for a clean path.
pub(crate) fn route<'a>(method: &Method, path: &'a str, handlers: &Handlers) -> Route<'a> {
    let exact = match path {
        "/healthz" => Some(Route::Health),
        "/metrics" => Some(Route::Page(Page::Metrics(Metrics::Node))),
        "/metrics/cadvisor" => Some(Route::Page(Page::Metrics(Metrics::Cadvisor))),
        "/metrics/probes" => Some(Route::Page(Page::Metrics(Metrics::Probes))),
        "/metrics/resource" => Some(Route::Page(Page::Metrics(Metrics::Resource))),
        "/metrics/slis" => Some(Route::Slis),
        "/configz" if handlers.debugging => Some(Route::Page(Page::Configz)),
        "/statusz" if handlers.debugging && handlers.statusz => Some(Route::Page(Page::Statusz)),
        "/flagz" if handlers.debugging && handlers.flagz => Some(Route::Page(Page::Flagz)),
        "/debug/flags/v" if handlers.debugging && handlers.debug_flags => Some(Route::Verbosity),
        "/debug/flags/v" if handlers.debugging => {
            Some(Route::Disabled("flags endpoint is disabled."))
        }
        _ => None,
    };
    if let Some(route) = exact {
        return route;
    }
    if let Some(check) = path.strip_prefix("/healthz/") {
        let plain = !check.is_empty() && !check.contains('/');
        return if plain { Route::HealthOf(check) } else { Route::Unknown };
    }
    let slash = |tree: &&str| tree.strip_suffix('/') == Some(path);
    if TREES.iter().any(&slash) && (handlers.debugging || path == "/stats")
        || !handlers.debugging && DISABLED_TREES.iter().any(slash)
    {
        return Route::Slash;
    }
    let tokens: Vec<&str> = path.trim_matches('/').split('/').collect();
    match tokens[0] {
        "pods" => service(method, tokens.len() == 1, "GET", Route::Page(Page::Pods)),
        "stats" => {
            let summary = Page::Summary { only_cpu_and_memory: false };
            let found = tokens.len() == 2 && tokens[1] == "summary";
            service(method, found, "GET, POST", Route::Page(summary))
        }
        _ if handlers.debugging => debugging(method, path, &tokens, handlers),
        _ if DISABLED_TREES.iter().any(|tree| path.starts_with(tree)) => {
            Route::Disabled("Debug endpoints are disabled.")
        }
        _ => Route::Unknown,
    }
}

fn debugging<'a>(
    method: &Method,
    path: &'a str,
    tokens: &[&'a str],
    handlers: &Handlers,
) -> Route<'a> {
    let pod = |uid_at: usize| match *tokens {
        [_, namespace, pod] if uid_at == 3 => {
            Some(Names { namespace, pod, uid: None, container: "" })
        }
        [_, namespace, pod, uid] if uid_at == 3 => {
            Some(Names { namespace, pod, uid: Some(uid), container: "" })
        }
        [_, namespace, pod, container] => Some(Names { namespace, pod, uid: None, container }),
        [_, namespace, pod, uid, container] if uid_at == 4 => {
            Some(Names { namespace, pod, uid: Some(uid), container })
        }
        _ => None,
    };
    let named =
        |allowed: &'static str, names: Option<Names<'a>>, make: fn(Names<'a>) -> Route<'a>| {
            match names {
                Some(names) => service(method, true, allowed, make(names)),
                None => Route::Nothing,
            }
        };
    match tokens[0] {
        "exec" => named("GET, POST", pod(4), Route::Exec),
        "attach" => named("GET, POST", pod(4), Route::Attach),
        "run" => named("POST", pod(4), Route::Run),
        "portForward" => named("GET, POST", pod(3), Route::PortForward),
        "containerLogs" => named("GET", pod(0), Route::ContainerLogs),
        "runningpods" => service(method, tokens.len() == 1, "GET", Route::Page(Page::RunningPods)),
        "checkpoint" if handlers.checkpoint => named("POST", pod(0), Route::Checkpoint),
        "logs" if !handlers.system_log => Route::Disabled("logs endpoint is disabled."),
        "logs" => service(method, true, "GET", Route::NodeLogs(&path["/logs/".len()..])),
        "debug" => match path.strip_prefix("/debug/pprof/") {
            Some(_) if !handlers.profiling => Route::Disabled("profiling endpoint is disabled."),
            Some(name) => service(method, true, "GET", Route::Profile(name)),
            None => Route::Unknown,
        },
        _ => Route::Unknown,
    }
}

/// A service's route: first whether there is one, then whether it takes the method.
fn service<'a>(method: &Method, found: bool, allowed: &'static str, route: Route<'a>) -> Route<'a> {
    if !found {
        return Route::Nothing;
    }
    let takes = allowed.split(", ").any(|allowed| allowed == method.as_str());
    if takes { route } else { Route::NoMethod(allowed) }
}

#[cfg(test)]
mod tests;
