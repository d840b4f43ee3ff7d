//! Links to logs in the directory that log shippers read.

use kubelet_model::{Action, ContainerId, ContainerName};

use crate::runtime_manager::log_paths;
use crate::runtime_manager::testing::{Bench, pod};

/// A container that ends at once may never be seen to run: its log is linked
/// when it is started, and the plan's own link changes nothing.
#[tokio::test]
async fn a_log_is_linked_when_its_container_starts() {
    let bench = Bench::new(|_, _| {});
    let pod = pod(r#""restartPolicy":"Never""#);
    let mut executor = bench.executor(Some(&pod));
    let name = ContainerName::new("app");
    let settings = &bench.means.settings;
    let log = log_paths::pod_dir(&settings.pod_logs_dir, &executor.identity)
        .join(log_paths::container_log(&name, 2));
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    std::fs::write(&log, "").unwrap();

    executor.ensure_images(&name, &|| {}).await.unwrap();
    let start = Action::StartContainer { name: name.clone(), restart_count: Some(2) };
    executor.perform(&start).await.unwrap();

    let links = || -> Vec<_> {
        let entries = std::fs::read_dir(&settings.container_log_links_dir).unwrap();
        entries.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect()
    };
    assert_eq!(links(), std::slice::from_ref(&log));
    let id = ContainerId::new("c1");
    executor.perform(&Action::LinkLog { id, name, restart_count: 2 }).await.unwrap();
    assert_eq!(links(), [log]);
}
