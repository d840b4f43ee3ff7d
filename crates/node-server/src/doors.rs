//! Who gets in at a port, and what is behind it.
//!
//! Upstream has one server for two of its ports: the one that asks who asks, and the one
//! that anybody may read. A third only says that the process lives.
//! Upstream: pkg/kubelet/server/server.go, cmd/kubelet/app/server.go.

use std::sync::Arc;

use crate::auth::{AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer};
use crate::routes::{Handlers, Route};
use crate::tls::Tls;

/// Who gets in, and how.
pub enum Doors {
    /// HTTPS, for whoever is known and allowed.
    Guarded(Guards),
    /// Plain HTTP for anybody: never a handler for debugging.
    Open,
    /// Plain HTTP for anybody: `/healthz`, which says that the process answers.
    Health,
}

/// How those are known who may enter.
pub struct Guards {
    /// The node's name, for which rights are asked.
    pub node_name: String,
    /// TLS, whose certificates can be replaced later.
    pub tls: Arc<Tls>,
    /// Who asks.
    pub authentication: AuthenticationOptions,
    /// Whether they may.
    pub authorization: AuthorizationOptions,
    /// Whether `exec`, `attach`, `run` and `portForward` need the right to create even
    /// if they are asked for with GET.
    pub create_for_streams: bool,
}

/// The doors of a server that runs.
pub(crate) enum Entrance {
    Guarded(Box<Guard>),
    Open,
    Health,
}

/// Asks who asks.
pub(crate) struct Guard {
    pub tls: Arc<Tls>,
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    pub create_for_streams: bool,
}

impl Entrance {
    pub(crate) fn new(doors: Doors) -> Self {
        match doors {
            Doors::Open => Self::Open,
            Doors::Health => Self::Health,
            Doors::Guarded(guards) => Self::Guarded(Box::new(Guard {
                tls: guards.tls,
                authenticator: Authenticator::new(guards.authentication),
                authorizer: Authorizer::new(guards.authorization, guards.node_name),
                create_for_streams: guards.create_for_streams,
            })),
        }
    }

    pub(crate) fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Guarded(guard) => Some(guard),
            Self::Open | Self::Health => None,
        }
    }

    /// What is left of the handlers behind these doors: nobody debugs without a name.
    pub(crate) fn handlers(&self, wanted: Handlers) -> Handlers {
        Handlers { debugging: wanted.debugging && self.guard().is_some(), ..wanted }
    }

    /// What is found behind these doors.
    pub(crate) fn narrow<'a>(&self, found: Route<'a>) -> Route<'a> {
        let healthy = matches!(found, Route::Health | Route::HealthOf(_));
        if healthy || !matches!(self, Self::Health) { found } else { Route::Unknown }
    }

    /// Names of health checks, in order, of those that the node has besides `ping`.
    pub(crate) fn checks(&self, of_node: Vec<&'static str>) -> Vec<&'static str> {
        let mut names = vec!["ping"];
        if !matches!(self, Self::Health) {
            names.extend(of_node);
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;
    use crate::routes::route;

    #[test]
    fn an_open_door_has_no_handler_for_debugging_behind_it() {
        assert!(!Entrance::Open.handlers(Handlers::default()).debugging);
        let handlers = Entrance::Open.handlers(Handlers::default());
        for (path, open, health) in [
            ("/healthz", "Health", "Health"),
            ("/healthz/ping", "HealthOf(\"ping\")", "HealthOf(\"ping\")"),
            ("/pods", "Page(Pods)", "Unknown"),
            ("/metrics", "Page(Metrics(Node))", "Unknown"),
            ("/metrics/slis", "Slis", "Unknown"),
            ("/exec/n/p/c", "Disabled(\"Debug endpoints are disabled.\")", "Unknown"),
            ("/configz", "Unknown", "Unknown"),
        ] {
            let found = || route(&Method::GET, path, &handlers);
            assert_eq!(format!("{:?}", Entrance::Open.narrow(found())), open, "{path}");
            assert_eq!(format!("{:?}", Entrance::Health.narrow(found())), health, "{path}");
        }
        assert_eq!(Entrance::Health.checks(vec!["log"]), ["ping"]);
        assert_eq!(Entrance::Open.checks(vec!["log"]), ["ping", "log"]);
    }
}
