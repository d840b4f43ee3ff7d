//! What a driver was asked, and what it shall do wrong.
//!
//! Owns the record of all calls, which outlives crashes, and a queue of
//! faults per RPC: each fault meets one call, in order.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plugin_apis::csi;
use plugin_apis::pluginregistration::{InfoRequest, RegistrationStatus};
use tonic::Code;

/// The calls a driver takes, named as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of CSI and of plugin registration")]
pub enum Rpc {
    GetPluginInfo,
    GetPluginCapabilities,
    Probe,
    NodeGetInfo,
    NodeGetCapabilities,
    NodeStageVolume,
    NodeUnstageVolume,
    NodePublishVolume,
    NodeUnpublishVolume,
    NodeGetVolumeStats,
    NodeExpandVolume,
    GetInfo,
    NotifyRegistrationStatus,
}

/// A request of one of the [`Rpc`]s.
pub trait Asked: Clone + Send + Sync + 'static {
    /// The call it belongs to.
    const RPC: Rpc;
    /// The volume it is about; empty if about none.
    fn volume(&self) -> &str;
}

macro_rules! asked {
    ($($request:path => $rpc:ident $(, $volume:ident)?;)*) => {$(
        impl Asked for $request {
            const RPC: Rpc = Rpc::$rpc;
            fn volume(&self) -> &str {
                [$(self.$volume.as_str())?].first().copied().unwrap_or_default()
            }
        }
    )*};
}

asked! {
    csi::GetPluginInfoRequest => GetPluginInfo;
    csi::GetPluginCapabilitiesRequest => GetPluginCapabilities;
    csi::ProbeRequest => Probe;
    csi::NodeGetInfoRequest => NodeGetInfo;
    csi::NodeGetCapabilitiesRequest => NodeGetCapabilities;
    csi::NodeStageVolumeRequest => NodeStageVolume, volume_id;
    csi::NodeUnstageVolumeRequest => NodeUnstageVolume, volume_id;
    csi::NodePublishVolumeRequest => NodePublishVolume, volume_id;
    csi::NodeUnpublishVolumeRequest => NodeUnpublishVolume, volume_id;
    csi::NodeGetVolumeStatsRequest => NodeGetVolumeStats, volume_id;
    csi::NodeExpandVolumeRequest => NodeExpandVolume, volume_id;
    InfoRequest => GetInfo;
    RegistrationStatus => NotifyRegistrationStatus;
}

/// How one call goes wrong: before its effect, unless [`once_done`](Self::once_done).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub(super) done: bool,
    pub(super) ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Fail(Code),
    Hang,
    Crash,
}

impl Fault {
    /// Answers this error.
    pub fn fail(code: Code) -> Self {
        Self { done: false, ending: Ending::Fail(code) }
    }
    /// Does not answer until the caller gives up.
    pub fn hang() -> Self {
        Self { done: false, ending: Ending::Hang }
    }
    /// Stops serving; every connection breaks, the socket's file stays.
    pub fn crash() -> Self {
        Self { done: false, ending: Ending::Crash }
    }
    /// Does what is asked first: only the answer is lost.
    pub fn once_done(self) -> Self {
        Self { done: true, ..self }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has not yet.
    Running,
    /// With an answer; success is [`Code::Ok`].
    Answered(Code),
    /// The caller gave up, or the driver went down because of another call.
    CutOff,
    /// It made the driver crash.
    Crashed,
}

/// A call that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub rpc: Rpc,
    /// The volume it is about; empty if about none.
    pub volume: String,
    /// How it ended.
    pub outcome: Outcome,
}

type Recorded = (Call, Box<dyn Any + Send + Sync>);

/// Calls and faults of one driver.
#[derive(Default)]
pub(super) struct Script {
    calls: Mutex<Vec<Recorded>>,
    faults: Mutex<BTreeMap<Rpc, VecDeque<Fault>>>,
}

/// A test that panics must still be able to clean up.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    pub(super) fn inject(&self, rpc: Rpc, fault: Fault) {
        lock(&self.faults).entry(rpc).or_default().push_back(fault);
    }

    pub(super) fn next_fault(&self, rpc: Rpc) -> Option<Fault> {
        lock(&self.faults).get_mut(&rpc)?.pop_front()
    }

    pub(super) fn begin<T: Asked>(&self, request: &T) -> Entry<'_> {
        let call =
            Call { rpc: T::RPC, volume: request.volume().to_owned(), outcome: Outcome::Running };
        let mut calls = lock(&self.calls);
        calls.push((call, Box::new(request.clone())));
        Entry { script: self, index: calls.len() - 1, outcome: Outcome::CutOff }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        lock(&self.calls).iter().map(|(call, _)| call.clone()).collect()
    }

    pub(super) fn requests<T: Asked>(&self) -> Vec<T> {
        let calls = lock(&self.calls);
        calls.iter().filter_map(|(_, request)| request.downcast_ref::<T>().cloned()).collect()
    }
}

/// A call under way. Dropped without an outcome, it was cut off.
pub(super) struct Entry<'a> {
    script: &'a Script,
    index: usize,
    outcome: Outcome,
}

impl Entry<'_> {
    pub(super) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some((call, _)) = lock(&self.script.calls).get_mut(self.index) {
            call.outcome = self.outcome;
        }
    }
}
