//! What was kept counts until the lists are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_model::{DesiredPod, Source};
use serde_json::json;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_was_kept_counts_until_the_lists_are_read() {
    let (of_services, services) = List::unread();
    let (of_handlers, handlers) = List::unread();
    let lists = ClusterLists(Some(Lists { services, handlers, kept: Arc::default() }));
    let pod = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"containers": []}});
    let pod = Arc::new(serde_json::from_value(pod).unwrap());
    let pod = DesiredPod::new(Source::Api, pod).unwrap();
    assert!(lists.service_variables(&pod).await.is_err());
    assert!(lists.runtime_handler("kata").await.is_err());
    let variables = vec![("A_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    lists.fall_back(KeptLists {
        variables: BTreeMap::from([(pod.uid().clone(), variables.clone())]),
        handlers: BTreeMap::from([("kata".to_owned(), "kata-qemu".to_owned())]),
    });
    assert_eq!(lists.service_variables(&pod).await, Ok(variables));
    assert_eq!(lists.runtime_handler("kata").await.as_deref(), Ok("kata-qemu"));
    assert_eq!(lists.known_handler("kata").as_deref(), Some("kata-qemu"));
    assert!(lists.known_variables(&pod).is_none() && !lists.are_read());
    of_services.send_replace(Some(Arc::default()));
    of_handlers.send_replace(Some(Arc::default()));
    lists.read().await;
    assert!(lists.are_read());
    assert_eq!(lists.service_variables(&pod).await, Ok(Vec::new()), "the server's word counts");
    assert!(lists.runtime_handler("kata").await.is_err());
}
