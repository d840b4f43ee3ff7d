//! Objects of somebody else in the same runtime. The agent must leave them be.

use cri::v1;

use crate::runtime::Program;
use crate::world::State;

impl State {
    /// Adds sandboxes and containers without the kubelet's labels, one of them
    /// without metadata.
    pub(crate) fn add_foreign_objects(&mut self) {
        let now = self.now();
        let image = Program::Deaf.image();
        self.objects.images.insert(image.clone());
        for index in 0..2 {
            let config = v1::PodSandboxConfig {
                metadata: Some(v1::PodSandboxMetadata {
                    name: format!("foreign-{index}"),
                    uid: format!("foreign-{index}"),
                    namespace: "elsewhere".into(),
                    attempt: 0,
                }),
                log_directory: format!("/var/log/foreign-{index}"),
                ..Default::default()
            };
            let Ok(name) = self.reserve_sandbox(&config) else {
                continue;
            };
            let sandbox = self.add_sandbox(name, config, String::new(), true, now);
            let config = v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata { name: "foreign".into(), attempt: 0 }),
                image: Some(v1::ImageSpec { image: image.clone(), ..Default::default() }),
                log_path: "foreign.log".into(),
                ..Default::default()
            };
            if let Ok(id) = self.add_container(&sandbox, config) {
                // Deaf programs run on by themselves; nothing waits for this one.
                let _ = self.start(&id, false);
                self.strip_metadata(index, &sandbox, &id);
            }
        }
    }

    fn strip_metadata(&mut self, index: usize, sandbox: &str, container: &str) {
        if index != 0 {
            return;
        }
        if let Some(sandbox) = self.objects.sandboxes.get_mut(sandbox) {
            sandbox.config.metadata = None;
        }
        if let Some(container) = self.objects.containers.get_mut(container) {
            container.config.metadata = None;
        }
    }
}
