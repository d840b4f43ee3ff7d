//! What lives of the volume manager have in common: a directory, and all that is around it.

use std::path::Path;
use std::sync::Arc;

use kubelet_model::DesiredPod;

use super::super::Volumes;
use super::csi::Scripted;
use super::ports;
use crate::events::Recorder;
use crate::object_cache::{self, Objects, ObjectsWriter};
use crate::plugin_manager::Drivers;
use crate::pod_sources::PodSetReader;
use crate::ports::{CsiNode, Ports};
use crate::progress::ProgressBoard;
use crate::settings::Settings;

/// A node of its own. Each part may be exchanged before a life begins.
pub(super) struct Bed {
    temp: tempfile::TempDir,
    pub settings: Settings,
    pub ports: Ports,
    pub recorder: Recorder,
    pub writer: ObjectsWriter,
    pub objects: Objects,
    pub drivers: Drivers,
}

impl Bed {
    /// Without drivers.
    pub(super) fn new() -> Self {
        let (temp, ports) = (tempfile::tempdir().expect("a directory"), ports());
        let root_dir = temp.path().to_owned();
        let (writer, objects) = object_cache::new();
        Self {
            settings: Settings { root_dir, ..Settings::for_node("n") },
            recorder: Recorder::new(Arc::clone(&ports.clock)),
            drivers: Drivers::default(),
            temp,
            ports,
            writer,
            objects,
        }
    }

    /// With the driver `d.example`.
    pub(super) fn with(driver: &Arc<Scripted>) -> Self {
        let driver = Arc::clone(driver) as Arc<dyn CsiNode>;
        Self { drivers: Drivers::holding("d.example", driver), ..Self::new() }
    }

    /// The agent's directory.
    pub(super) fn root(&self) -> &Path {
        self.temp.path()
    }

    /// The volumes of one life of the agent, to which these pods were given.
    pub(super) fn life(&self, pods: &[&DesiredPod]) -> Volumes {
        self.life_of(&PodSetReader::for_test(pods).1)
    }

    /// The same of an agent whose pods may change.
    pub(super) fn life_of(&self, desired: &PodSetReader) -> Volumes {
        let Self { settings, ports, recorder, objects, drivers, .. } = self;
        let settings = Arc::new(settings.clone());
        let progress = ProgressBoard::default();
        Volumes::new(ports, &settings, recorder, &progress, objects, desired, drivers)
    }
}
