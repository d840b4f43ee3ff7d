//! Services and RuntimeClasses of the API server, for the containers that need them.
//!
//! Owns the newest of each list, of which it keeps only what pods need. Each list has one
//! task that follows it; others read. A node of its own has no such lists, which is not
//! the same as lists that were not read yet. Upstream: the service lister of
//! pkg/kubelet/kubelet.go, pkg/kubelet/runtimeclass.

mod list;
mod runtime_class;
mod service;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kubelet_model::{DesiredPod, PodUid};

use crate::ports::Ports;
use list::List;
use service::Service;

/// How long a container waits for the first list before its start fails and is tried again.
const FIRST_READ: Duration = Duration::from_secs(10);

/// The lists. Cheap to clone.
#[derive(Clone, Default)]
pub struct ClusterLists(Option<Lists>);

#[derive(Clone)]
struct Lists {
    services: List<Service>,
    handlers: List<String>,
    kept: Arc<Mutex<KeptLists>>,
}

/// What was known in another life of the agent: counts until the lists are read.
#[derive(Default)]
pub struct KeptLists {
    /// Variables of services, by pod.
    pub variables: BTreeMap<PodUid, Vec<(String, String)>>,
    /// Handlers, by class.
    pub handlers: BTreeMap<String, String>,
}

impl Lists {
    fn kept(&self) -> MutexGuard<'_, KeptLists> {
        self.kept.lock().expect("kept lists lock: no code panics while holding it")
    }

    fn handler(&self, class: &str) -> Option<String> {
        match self.handlers.now() {
            Some(classes) => classes.get(&(String::new(), class.to_owned())).cloned(),
            None => self.kept().handlers.get(class).cloned(),
        }
    }
}

impl ClusterLists {
    /// Follows the lists, if there is an API server.
    pub fn start(ports: &Ports) -> Self {
        Self(ports.api.clone().map(|api| Lists {
            kept: Arc::default(),
            services: list::follow(
                &api,
                "/api/v1/services",
                // Those without an address are many in a large cluster, and make no variables.
                Some("spec.clusterIP!=None"),
                service::read,
                ports,
            ),
            handlers: list::follow(
                &api,
                "/apis/node.k8s.io/v1/runtimeclasses",
                None,
                runtime_class::read,
                ports,
            ),
        }))
    }

    /// The variables that services give to the containers of a pod, sorted by name.
    ///
    /// A static pod takes what is known: it must start without an API server.
    ///
    /// # Errors
    /// No list of services was read yet.
    pub async fn service_variables(
        &self,
        pod: &DesiredPod,
    ) -> Result<Vec<(String, String)>, String> {
        let Some(lists) = &self.0 else { return Ok(Vec::new()) };
        let kept = || lists.kept().variables.get(pod.uid()).cloned();
        let services = match pod.is_static() {
            true => lists.services.now(),
            false => match (lists.services.now(), kept()) {
                (None, Some(kept)) => return Ok(kept),
                _ => lists.services.first(FIRST_READ).await,
            },
        };
        match services {
            Some(services) => Ok(variables(&services, pod)),
            None if pod.is_static() => Ok(Vec::new()),
            None => Err("services have not yet been read at least once, cannot construct envvars"
                .to_owned()),
        }
    }

    /// The same without waiting; `None` if no list was read yet.
    pub fn known_variables(&self, pod: &DesiredPod) -> Option<Vec<(String, String)>> {
        let Some(lists) = &self.0 else { return Some(Vec::new()) };
        Some(variables(&*lists.services.now()?, pod))
    }

    /// Returns once both lists were read.
    pub async fn read(&self) {
        if let Some(lists) = &self.0 {
            lists.services.read().await;
            lists.handlers.read().await;
        }
    }

    /// Whether both lists were read.
    pub fn are_read(&self) -> bool {
        let read = |lists: &Lists| lists.services.now().is_some() && lists.handlers.now().is_some();
        self.0.as_ref().is_none_or(read)
    }

    /// The API server is away: this counts until it answers.
    pub fn fall_back(&self, kept: KeptLists) {
        if let Some(lists) = &self.0 {
            *lists.kept() = kept;
        }
    }

    /// The runtime's handler for a class. On a node of its own a class is the handler of
    /// the same name.
    ///
    /// # Errors
    /// There is no such class, or it is not known yet.
    pub async fn runtime_handler(&self, class: &str) -> Result<String, String> {
        let Some(lists) = self.0.as_ref().filter(|_| !class.is_empty()) else {
            return Ok(class.to_owned());
        };
        if lists.handlers.now().is_none()
            && let Some(kept) = lists.handler(class)
        {
            return Ok(kept);
        }
        let classes = lists.handlers.first(FIRST_READ).await;
        let classes = classes
            .ok_or_else(|| format!("RuntimeClass {class:?}: no list of classes was read yet"))?;
        let key = (String::new(), class.to_owned());
        let found = classes.get(&key).cloned();
        found.ok_or_else(|| format!("runtimeclass.node.k8s.io {class:?} not found"))
    }

    /// The same without waiting; `None` if it is not known.
    pub fn known_handler(&self, class: &str) -> Option<String> {
        match &self.0 {
            Some(lists) if !class.is_empty() => lists.handler(class),
            _ => Some(class.to_owned()),
        }
    }
}

fn variables(services: &list::Kept<Service>, pod: &DesiredPod) -> Vec<(String, String)> {
    let links = pod.spec().enable_service_links.unwrap_or(true);
    service::variables(services, pod.namespace(), links)
}

#[cfg(test)]
mod tests;
