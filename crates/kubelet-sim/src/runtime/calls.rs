//! The runtime port: one method per CRI call.
//!
//! One handle per life of the agent; all share the world.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{CallError, CallErrorKind, EventStream, v1};
use futures_util::StreamExt;
use rand::RngExt;
use tokio::time::sleep;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;

use super::fate::{Call, REQUEST_LIMIT, change, look};
use super::model::{POD_NAME, image_id, refused, short};
use crate::faults::EventSupport;
use crate::hooks::Command;
use crate::world::{Life, World};

/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Bytes of memory that every container uses.
const CONTAINER_USES: u64 = 1 << 20;

/// The runtime as one life of the agent sees it.
pub struct SimRuntime {
    world: Arc<World>,
    life: Life,
}

impl SimRuntime {
    /// A handle for one life.
    pub fn new(world: Arc<World>, life: Life) -> Self {
        Self { world, life }
    }

    fn call(&self, name: &'static str, object: &str, pod: String) -> Call {
        Call { name, object: object.to_owned(), pod, limit: Some(REQUEST_LIMIT) }
    }

    fn pod_of_sandbox(&self, id: &str) -> String {
        let state = self.world.lock();
        let sandbox = state.objects.sandboxes.get(id);
        sandbox.map(|s| s.pod().to_owned()).unwrap_or_default()
    }

    fn pod_of_container(&self, id: &str) -> String {
        let state = self.world.lock();
        let container = state.objects.containers.get(id);
        container.map(|c| c.pod().to_owned()).unwrap_or_default()
    }
}

#[async_trait]
impl cri::Runtime for SimRuntime {
    async fn version(&self) -> Result<v1::VersionResponse, CallError> {
        look(&self.world, &self.life, "Version", "", |_| {
            Ok(v1::VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "containerd".into(),
                runtime_version: "2.0.0".into(),
                runtime_api_version: "v1".into(),
            })
        })
        .await
    }

    async fn status(&self) -> Result<v1::StatusResponse, CallError> {
        let ready = |kind: &str| v1::RuntimeCondition {
            r#type: kind.into(),
            status: true,
            ..Default::default()
        };
        look(&self.world, &self.life, "Status", "", |_| {
            Ok(v1::StatusResponse {
                status: Some(v1::RuntimeStatus {
                    conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
                }),
                ..Default::default()
            })
        })
        .await
    }

    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, CallError> {
        look(&self.world, &self.life, "RuntimeConfig", "", |_| {
            Ok(v1::RuntimeConfigResponse {
                linux: Some(v1::LinuxRuntimeConfiguration {
                    cgroup_driver: v1::CgroupDriver::Cgroupfs.into(),
                }),
            })
        })
        .await
    }

    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        runtime_handler: &str,
    ) -> Result<String, CallError> {
        let handler = runtime_handler.to_owned();
        let pod = config.labels.get(POD_NAME).cloned().unwrap_or_default();
        let attempt = config.metadata.as_ref().map_or(0, |m| m.attempt);
        let mut call = self.call("RunPodSandbox", &format!("attempt {attempt}"), pod);
        call.limit = Some(REQUEST_LIMIT * 2);
        if self.life.is_alive() {
            self.world.lock().check_sandbox_asked(&config);
        }
        let asked_at = self.world.now();
        change(&self.world, &self.life, call, move |world, inside| async move {
            let name = world.lock().reserve_sandbox(&config)?;
            sleep(inside).await;
            let mut state = world.lock();
            let half_made = state.faults.half_made_sandbox;
            if state.chance(half_made) {
                // Some failures leave the sandbox behind, some do not.
                if state.rng.random_bool(0.5) {
                    state.add_sandbox(name, config, handler, false, asked_at);
                } else {
                    state.objects.names.remove(&name);
                }
                return Err(refused(Code::Unknown, "failed to setup network for sandbox"));
            }
            Ok(state.add_sandbox(name, config, handler, true, asked_at))
        })
        .await
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("StopPodSandbox", short(id), self.pod_of_sandbox(id));
        let id = id.to_owned();
        if self.life.is_alive() {
            self.world.lock().check_sandbox_stop_asked(&id, call.name);
        }
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            world.lock().stop_sandbox(&id);
            Ok(())
        })
        .await
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("RemovePodSandbox", short(id), self.pod_of_sandbox(id));
        let id = id.to_owned();
        if self.life.is_alive() {
            self.world.lock().check_sandbox_stop_asked(&id, call.name);
        }
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            world.lock().remove_sandbox(&id);
            Ok(())
        })
        .await
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CallError> {
        let answer = look(&self.world, &self.life, "PodSandboxStatus", id, |state| {
            let sandbox = state.objects.sandboxes.get(id);
            sandbox.map(|s| s.status()).ok_or_else(|| not_found(id))
        })
        .await;
        if answer.is_err() && self.life.is_alive() {
            self.world.lock().note_no_address(id);
        }
        answer
    }

    async fn list_pod_sandbox(
        &self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Result<Vec<v1::PodSandbox>, CallError> {
        look(&self.world, &self.life, "ListPodSandbox", "", |state| {
            Ok(state.listed_sandboxes(filter.as_ref()))
        })
        .await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        _sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, CallError> {
        let name = config.metadata.as_ref().map_or("", |m| &m.name).to_owned();
        let attempt = config.metadata.as_ref().map_or(0, |m| m.attempt);
        let object = format!("{name} attempt {attempt}");
        let call = self.call("CreateContainer", &object, self.pod_of_sandbox(sandbox_id));
        let sandbox = sandbox_id.to_owned();
        if self.life.is_alive() {
            self.world.lock().check_owned_sandbox(&sandbox, call.name);
        }
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            world.lock().add_container(&sandbox, config)
        })
        .await
    }

    async fn start_container(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("StartContainer", short(id), self.pod_of_container(id));
        let (id, asked) = (id.to_owned(), id);
        if self.life.is_alive() {
            self.world.lock().check_start_asked(&id);
        }
        let answer = change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            let exits = {
                let mut state = world.lock();
                let rate = state.faults.start_error;
                let fail = state.chance(rate);
                state.start(&id, fail)?
            };
            if let Some((after, code)) = exits {
                tokio::spawn(async move {
                    sleep(after).await;
                    let reason = if code == 0 { "Completed" } else { "Error" };
                    world.lock().end(&id, code, reason);
                });
            }
            Ok(())
        })
        .await;
        if answer.is_ok() {
            self.world.lock().hear_of_start(asked);
        }
        answer
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), CallError> {
        let object = format!("{} within {}ms", short(id), grace.as_millis());
        let mut call = self.call("StopContainer", &object, self.pod_of_container(id));
        call.limit = Some(REQUEST_LIMIT + grace);
        let id = id.to_owned();
        if self.life.is_alive() {
            let mut state = self.world.lock();
            state.check_stop_order(&id, grace);
            state.check_stop_asked(&id, call.name);
        }
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            let (mut ended, wait, code) = {
                let mut state = world.lock();
                state.record(&id);
                match state.objects.containers.get(&id) {
                    None if state.faults.stop_unknown_refused => return Err(not_found(&id)),
                    None => return Ok(()),
                    Some(container) if !container.is_running() => return Ok(()),
                    Some(container) => {
                        let (wait, code) = container.program().on_term(grace);
                        (container.ended.subscribe(), wait, code)
                    }
                }
            };
            // Whatever ends it first, this stop or something else.
            let _ = tokio::time::timeout(wait, ended.wait_for(|done| *done)).await;
            let mut state = world.lock();
            state.end(&id, code, "Error");
            state.record(&id);
            Ok(())
        })
        .await
    }

    async fn remove_container(&self, id: &str) -> Result<(), CallError> {
        let call = self.call("RemoveContainer", short(id), self.pod_of_container(id));
        let id = id.to_owned();
        if self.life.is_alive() {
            self.world.lock().check_stop_asked(&id, call.name);
        }
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            world.lock().remove_container(&id);
            Ok(())
        })
        .await
    }

    async fn list_containers(
        &self,
        filter: Option<v1::ContainerFilter>,
    ) -> Result<Vec<v1::Container>, CallError> {
        look(&self.world, &self.life, "ListContainers", "", |state| {
            Ok(state.listed_containers(filter.as_ref()))
        })
        .await
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CallError> {
        look(&self.world, &self.life, "ContainerStatus", id, |state| {
            let container = state.objects.containers.get(id);
            container.map(|c| c.status()).ok_or_else(|| not_found(id))
        })
        .await
    }

    async fn update_container_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), CallError> {
        let call = self.call("UpdateContainerResources", short(id), self.pod_of_container(id));
        let id = id.to_owned();
        change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(inside).await;
            world.lock().update_resources(&id, resources)
        })
        .await
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<v1::ExecSyncResponse, CallError> {
        let asked = Command::parse(&command);
        let object = format!("{} {}", short(id), command.join(" "));
        let mut call = self.call("ExecSync", &object, self.pod_of_container(id));
        call.limit = limit.map(|limit| REQUEST_LIMIT + limit);
        if self.life.is_alive() {
            self.world.lock().note_hook_asked(id, asked);
        }
        let owned = id.to_owned();
        let answer = change(&self.world, &self.life, call, move |world, inside| async move {
            sleep(limit.map_or(inside, |limit| inside.min(limit))).await;
            run_command(&world, &owned, asked, limit).await
        })
        .await;
        let well = answer.as_ref().is_ok_and(|answer| answer.exit_code == 0);
        self.world.lock().note_exec(id, asked, well);
        answer
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, CallError> {
        look(&self.world, &self.life, "Exec", &request.container_id, |_| {
            Err(refused(Code::Unimplemented, "the simulated runtime streams nothing"))
        })
        .await
    }

    async fn reopen_container_log(&self, id: &str) -> Result<(), CallError> {
        look(&self.world, &self.life, "ReopenContainerLog", id, |state| {
            let known = state.objects.containers.contains_key(id);
            known.then_some(()).ok_or_else(|| not_found(id))
        })
        .await
    }

    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>, CallError> {
        // It measures nothing but that every container uses a little memory.
        look(&self.world, &self.life, "ListContainerStats", "", |state| {
            let running = state.objects.containers.values().filter(|c| c.is_running());
            let usage = v1::UInt64Value { value: CONTAINER_USES };
            let memory = v1::MemoryUsage { usage_bytes: Some(usage), ..Default::default() };
            let stats = |id: &str| v1::ContainerStats {
                attributes: Some(v1::ContainerAttributes {
                    id: id.to_owned(),
                    ..Default::default()
                }),
                memory: Some(memory),
                ..Default::default()
            };
            Ok(running.map(|c| stats(&c.id)).collect())
        })
        .await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, CallError> {
        look(&self.world, &self.life, "ListImages", "", |state| {
            let names: Vec<String> = state.objects.images.iter().cloned().collect();
            Ok(names.iter().filter_map(|name| state.image(name)).collect())
        })
        .await
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, CallError> {
        look(&self.world, &self.life, "ImageStatus", &image.image, |state| {
            if !state.faults.images_absent {
                state.objects.images.insert(image.image.clone());
            }
            Ok(state.image(&image.image))
        })
        .await
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        _auth: Option<v1::AuthConfig>,
        _sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        let mut call = self.call("PullImage", &image.image, String::new());
        call.limit = None;
        change(&self.world, &self.life, call, move |world, inside| async move {
            let took = Duration::from_millis(world.lock().rng.random_range(10..8_000));
            sleep(inside + took).await;
            let mut state = world.lock();
            let rate = state.faults.pull_error;
            if state.chance(rate) {
                return Err(refused(Code::Unknown, "failed to pull and unpack image: simulated"));
            }
            state.objects.images.insert(image.image.clone());
            Ok(image_id(&image.image))
        })
        .await
    }

    async fn events(&self) -> Result<EventStream, CallError> {
        let life = self.life.clone();
        let receiver = look(&self.world, &self.life, "GetContainerEvents", "", |state| {
            if state.faults.events == EventSupport::Unimplemented {
                return Err(refused(Code::Unimplemented, "method not implemented"));
            }
            Ok(state.subscribe())
        })
        .await?;
        let stream = UnboundedReceiverStream::new(receiver);
        Ok(stream.filter(move |_| std::future::ready(life.is_alive())).map(Ok).boxed())
    }
}

/// Runs a command in a container, at most until either of them ends.
async fn run_command(
    world: &World,
    id: &str,
    command: Command,
    limit: Option<Duration>,
) -> Result<v1::ExecSyncResponse, CallErrorKind> {
    let mut ended = {
        let state = world.lock();
        let container = state.objects.containers.get(id).ok_or_else(|| not_found(id))?;
        if !container.is_running() {
            return Err(refused(Code::Unknown, "container is not running"));
        }
        container.ended.subscribe()
    };
    let takes = command.takes().unwrap_or(Duration::MAX);
    tokio::select! { biased;
        _ = ended.wait_for(|done| *done) => {
            return Err(refused(Code::Unknown, "the container ended"));
        }
        () = sleep(takes.min(FOR_EVER)) => {}
        () = sleep(limit.unwrap_or(FOR_EVER)) => {
            return Err(refused(Code::DeadlineExceeded, "the command took too long"));
        }
    }
    let state = world.lock();
    let exit_code = match command {
        Command::Probe(_) => {
            let container = state.objects.containers.get(id).ok_or_else(|| not_found(id))?;
            i32::from(!state.is_well(container))
        }
        Command::PostStart(hook) | Command::PreStop(hook) => i32::from(hook.code),
        Command::Other => 0,
    };
    Ok(v1::ExecSyncResponse { exit_code, ..Default::default() })
}

fn not_found(id: &str) -> CallErrorKind {
    refused(Code::NotFound, format!("an error occurred when try to find {id:?}: not found"))
}
