//! What scenarios do to the API server and see of it.

use std::time::Duration;

use jiff::SignedDuration;

use super::Away;
use crate::agent::stored_pod;
use crate::checkers::ReportedPod;
use crate::manifest::PodTemplate;
use crate::sim::{NODE, SimWorld};

impl SimWorld {
    /// A user creates a pod; returns it with its uid and revision.
    pub fn create_pod(&mut self, template: &PodTemplate) -> PodTemplate {
        let _guard = self.rt.enter();
        self.world.lock().create_pod(template)
    }

    /// A user changes a pod's images.
    pub fn edit_pod(&mut self, template: &PodTemplate) -> PodTemplate {
        let _guard = self.rt.enter();
        self.world.lock().edit_pod(template)
    }

    /// A user deletes a pod; with `force`, its object goes at once.
    pub fn delete_pod(&mut self, name: &str, force: bool) {
        let _guard = self.rt.enter();
        self.world.lock().delete_pod(name, force);
    }

    /// The API server refuses connections, or keeps silent, for a while.
    pub fn take_api(&mut self, time: Duration, silent: bool) {
        let _guard = self.rt.enter();
        let how = if silent { Away::Silent } else { Away::Refusing };
        self.world.lock().take_api(time, how);
    }

    /// The node's certificate has expired, or is not to be had, for a while.
    pub fn lock_out(&mut self, time: Duration, missing: bool) {
        let _guard = self.rt.enter();
        let how = if missing { Away::NoCredentials } else { Away::Unauthorized };
        self.world.lock().take_api(time, how);
    }

    /// The API server starts anew and remembers no changes.
    pub fn restart_api(&mut self) {
        let _guard = self.rt.enter();
        self.world.lock().restart_api();
    }

    /// The API server's newest revision.
    pub fn api_revision(&self) -> u64 {
        let state = self.world.lock();
        state.api.as_ref().map_or(0, |server| server.direct.api().store().revision())
    }

    /// The API server's store is again what it was at a revision; later ones go on as many
    /// above.
    pub fn restore_api(&mut self, to: u64, bump: u64) {
        let changes = self.api_revision().saturating_sub(to);
        let _guard = self.rt.enter();
        self.world.lock().restore_api(changes, bump);
    }

    /// The API server's clock is ahead by this much.
    pub fn skew_api(&mut self, by: SignedDuration) {
        let _guard = self.rt.enter();
        self.world.lock().skew_api(by);
    }

    /// What the API server holds of a pod.
    pub fn stored(&self, name: &str) -> Option<ReportedPod> {
        let pod = format!("{name}-{NODE}");
        let state = self.world.lock();
        let pods = state.api.as_ref().map(|server| server.pods()).unwrap_or_default();
        pods.iter().map(stored_pod).find(|stored| stored.name == pod)
    }

    /// Most requests of one minute since this was last asked, and what they were.
    pub fn most_requests(&mut self) -> (u32, String) {
        let mut state = self.world.lock();
        let server = state.api.as_mut();
        server.map(|server| std::mem::take(&mut server.record.most)).unwrap_or_default()
    }

    /// How often the agent patched the status of a pod.
    pub fn status_patches(&self, uid: &str) -> u32 {
        let state = self.world.lock();
        state.api.as_ref().map_or(0, |server| server.record.patches_of(uid))
    }
}
