//! Volumes of a cluster that grow: what the node does about it, and tells of it.
//!
//! Reads the claim anew before anything is done, because what is cached of it may be a
//! minute old. Writes the claim's status, and events of the pod and of the claim. One at
//! a time works on a volume. On a node of its own nobody says when a volume grows but its
//! manifest: that is no business of this module. Upstream:
//! pkg/volume/util/operationexecutor.

mod plan;

use cluster::claims::{Claims, Mark};
use kubelet_model::{ConfigObject, EventObject, EventType, ObjectKey};
use serde_json::Value;

use super::csi::CsiSpec;
use super::devices::Device;
use super::layout::VolumeName;
use super::plugins::{self, Means};
use crate::events::Recorder;
use crate::ports::Clock;
pub(super) use plan::{ClaimSize, Failure, Size};
use plan::{Decision, End, Expand, Tell};

/// What a cluster says of a volume's size, as far as the node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// The claim.
    key: ObjectKey,
    /// What it says.
    claim: ClaimSize,
    /// How large the volume is.
    volume: Size,
}

impl Sizes {
    /// `None` for a claim of a manifest.
    pub(super) fn of(claim: &ConfigObject, volume: Size) -> Option<Self> {
        let (key, claim) = (claim.key.clone(), ClaimSize::of(claim)?);
        Some(Self { key, claim, volume })
    }

    /// May it be the node's turn to make the volume larger?
    pub(super) fn is_turn(&self) -> bool {
        let waits = || plan::decide(&self.claim, &self.volume, false) == Decision::Wait;
        self.claim.is.is_some() && !waits()
    }
}

/// How large a volume is, and whether that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    pub bytes: i64,
    pub all: bool,
}

/// What volumes are grown with.
pub(super) struct Grower<'a> {
    pub means: &'a Means<'a>,
    pub claims: &'a Claims,
    pub clock: &'a dyn Clock,
    pub recorder: &'a Recorder,
    /// Whose volume it is.
    pub pod: &'a EventObject,
}

impl Grower<'_> {
    /// Before a volume counts as mounted: it is as large as its claim is to be. Returns
    /// how large it is known to be; nothing if nobody says.
    pub(super) async fn at_mount(
        &self,
        name: &VolumeName,
        spec: &CsiSpec,
    ) -> Result<Option<i64>, String> {
        let Some(sizes) = spec.persistent.as_ref().and_then(|own| own.sizes.as_ref()) else {
            return Ok(None);
        };
        let mut device = self.means.devices.turn(&spec.driver, &spec.handle).await;
        let known = |claim: &ClaimSize, device: &Device| {
            claim.is.as_ref().map(|is| is.bytes).max(device.growth.bytes)
        };
        if !sizes.claim.lags(&sizes.volume) {
            return Ok(known(&sizes.claim, &device));
        }
        let (object, claim) = self.read(&sizes.key).await?;
        if !claim.lags(&sizes.volume) {
            return Ok(known(&claim, &device));
        }
        if spec.read_only {
            let text = self.text("failed", spec.place(name), "requested read-only file system");
            self.tell(&object, EventType::Warning, "FileSystemResizeFailed", &text);
            return Ok(known(&claim, &device));
        }
        let asked = match plan::decide(&claim, &sizes.volume, device.growth.failed) {
            Decision::Settled(_) | Decision::Wait => return Ok(known(&claim, &device)),
            Decision::Expand(asked) => asked,
        };
        let grown = self.expand(name, spec, object, &asked, &mut device).await?;
        Ok(if grown { Some(asked.to.bytes) } else { known(&claim, &device) })
    }

    /// A volume that is in use has become larger.
    pub(super) async fn online(
        &self,
        name: &VolumeName,
        spec: &CsiSpec,
    ) -> Result<Reached, String> {
        let all = |bytes| Ok(Reached { bytes, all: true });
        let Some(sizes) = spec.persistent.as_ref().and_then(|own| own.sizes.as_ref()) else {
            return all(0);
        };
        let mut device = self.means.devices.turn(&spec.driver, &spec.handle).await;
        let wanted = sizes.volume.bytes;
        if device.growth.refused || device.growth.bytes.is_some_and(|bytes| bytes >= wanted) {
            return all(wanted);
        }
        let (object, claim) = self.read(&sizes.key).await?;
        let is = claim.is.as_ref().map_or(0, |is| is.bytes);
        let reached = |bytes| Ok(Reached { bytes, all: bytes >= wanted });
        match plan::decide(&claim, &sizes.volume, device.growth.failed) {
            Decision::Settled(bytes) => reached(bytes),
            Decision::Wait => Ok(Reached { bytes: is, all: false }),
            Decision::Expand(asked) => {
                match self.expand(name, spec, object, &asked, &mut device).await? {
                    true => reached(asked.to.bytes),
                    // It is not tried again while it is in use.
                    false => all(wanted),
                }
            }
        }
    }

    async fn read(&self, key: &ObjectKey) -> Result<(Value, ClaimSize), String> {
        let failed = |why: String| format!("mountVolume.NodeExpandVolume get PVC failed : {why}");
        let found = self.claims.get(&key.namespace, &key.name).await;
        let object = found.map_err(|error| failed(error.to_string()))?;
        let claim = cluster::objects::config_object(key, object.clone()).map_err(failed)?;
        Ok((object, ClaimSize::of(&claim).unwrap_or_default()))
    }

    /// Has the driver grow a volume, and the claim say so. Is it larger then?
    async fn expand(
        &self,
        name: &VolumeName,
        spec: &CsiSpec,
        mut claim: Value,
        asked: &Expand,
        device: &mut Device,
    ) -> Result<bool, String> {
        if asked.told && !asked.updated {
            claim = self.mark(&claim, &Mark::Begun).await?;
        }
        let place = spec.place(name);
        if let Err((failure, why)) = plugins::expand(self.means, name, spec, asked.to.bytes).await {
            return self.failed(place, &claim, asked, device, failure, why).await;
        }
        device.growth.bytes = Some(asked.to.bytes);
        device.growth.failed = false;
        let text = self.text("succeeded", place, self.means.node_name);
        tracing::info!(volume = %place, bytes = asked.to.bytes, "volume has grown");
        self.tell(&claim, EventType::Normal, "FileSystemResizeSuccessful", &text);
        if !asked.updated {
            let done = self.mark(&claim, &Mark::Done(asked.to.text.clone())).await;
            // Until it is said, it counts as not done.
            if let Err(why) = done {
                device.growth.bytes = None;
                return Err(match asked.told {
                    true => format!("mountVolume.NodeExpandVolume update pvc status failed: {why}"),
                    false => {
                        format!("mountVolume.NodeExpandVolume update PVC status failed : {why}")
                    }
                });
            }
        }
        Ok(true)
    }

    async fn failed(
        &self,
        place: &VolumeName,
        claim: &Value,
        asked: &Expand,
        device: &mut Device,
        failure: Failure,
        why: String,
    ) -> Result<bool, String> {
        let verdict = plan::judge(asked, failure);
        device.growth.failed |= verdict.remember;
        let mark = verdict.tell.map(|tell| match tell {
            Tell::Failed => Mark::Failed(why.clone()),
            Tell::Infeasible => Mark::Infeasible(why.clone()),
        });
        // As upstream: what the driver said matters more than that nobody can be told.
        if let Some(mark) = mark
            && let Err(error) = self.mark(claim, &mark).await
        {
            tracing::warn!(volume = %place, %error, "a claim does not tell why it did not grow");
        }
        match verdict.end {
            End::Grown => Ok(true),
            End::AsItIs => {
                device.growth.refused = true;
                tracing::warn!(volume = %place, error = %why, "volume not grown while in use");
                Ok(false)
            }
            End::Failed => Err(why),
        }
    }

    async fn mark(&self, claim: &Value, mark: &Mark) -> Result<Value, String> {
        let marked = self.claims.mark(claim, mark, self.clock.wall()).await;
        marked.map_err(|error| error.to_string())
    }

    fn text(&self, came: &str, place: &VolumeName, more: &str) -> String {
        format!("MountVolume.NodeExpandVolume {came} for volume \"{place}\" {more}")
    }

    /// Tells users, of the pod and of the claim.
    fn tell(&self, claim: &Value, kind: EventType, reason: &'static str, text: &str) {
        let field = |name: &str| claim["metadata"][name].as_str().unwrap_or_default().to_owned();
        let claim = EventObject::Claim {
            uid: field("uid"),
            name: field("name"),
            namespace: field("namespace"),
        };
        self.recorder.record(self.pod, kind, reason, text);
        self.recorder.record(&claim, kind, reason, text);
    }
}
