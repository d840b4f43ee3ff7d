//! The calls that change CSINode and Node; each reads, decides and writes once.

use std::sync::Arc;

use api_client::{Api, ApiError, Call, Patch, Spread, path};
use serde_json::{Value, json};

use super::plan::{self, Driver, Unsayable};

/// Where CSINodes are.
const API: &str = "apis/storage.k8s.io/v1";

/// Why an object was not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The server says so.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// It would contradict itself.
    #[error(transparent)]
    Unsayable(#[from] Unsayable),
    /// The object was another Node's.
    #[error(
        "CSINode {name:?} was owned by different node (oldNodeID={old:?}, newNodeID={new:?}), \
         deleted it"
    )]
    Foreign { name: String, old: String, new: String },
}

/// Changes the objects of one node.
pub(super) struct Writer {
    pub node_name: String,
    pub api: Arc<dyn Api>,
    pub spread: Spread,
}

impl Writer {
    /// The object is there, the node's own, and names no kinds that nobody has drivers serve.
    pub async fn initialise(&self, uid: &str) -> Result<(), WriteError> {
        let found = self.own_or_new(uid).await?;
        match plan::without_migrated(&found) {
            Some(new) => self.put(new).await,
            None => Ok(()),
        }
    }

    /// The object lists a driver.
    pub async fn with(&self, uid: &str, driver: &Driver) -> Result<(), WriteError> {
        let found = self.own_or_new(uid).await?;
        match plan::with_driver(&found, driver) {
            Some(new) => self.put(new).await,
            None => Ok(()),
        }
    }

    /// The object lists a driver no more.
    pub async fn without(&self, name: &str) -> Result<(), WriteError> {
        let Some(found) = self.get().await? else { return Ok(()) };
        match plan::without_driver(&found, name) {
            Some(new) => self.put(new).await,
            None => Ok(()),
        }
    }

    /// The Node tells how a driver knows it.
    pub async fn node_with(&self, driver: &Driver) -> Result<(), WriteError> {
        let node = self.api.call(Call::get(&self.node_path(&[]))).await?;
        self.patch_node(plan::node_with(&node, driver)?).await
    }

    /// The Node tells it no more.
    pub async fn node_without(&self, name: &str) -> Result<(), WriteError> {
        let node = self.api.call(Call::get(&self.node_path(&[]))).await?;
        self.patch_node(plan::node_without(&node, name)?).await
    }

    async fn own_or_new(&self, uid: &str) -> Result<Value, WriteError> {
        let Some(found) = self.get().await? else {
            let new = plan::fresh(&self.node_name, uid);
            return Ok(self.api.call(Call::post(&path(API, "", &["csinodes"]), new)).await?);
        };
        if let Err(old) = plan::check_owner(&found, &self.node_name, uid) {
            self.api.call(Call::delete(&self.path(), json!({}))).await?;
            // The next attempt makes one.
            let (name, new) = (self.node_name.clone(), uid.to_owned());
            return Err(WriteError::Foreign { name, old, new });
        }
        Ok(found)
    }

    async fn get(&self) -> Result<Option<Value>, ApiError> {
        match self.api.call(Call::get(&self.path())).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, object: Value) -> Result<(), WriteError> {
        Ok(self.api.call(Call::put(&self.path(), object)).await.map(drop)?)
    }

    /// As upstream: through the status, which takes labels and annotations, too.
    async fn patch_node(&self, patch: Option<Value>) -> Result<(), WriteError> {
        let Some(patch) = patch else { return Ok(()) };
        let call = Call::patch(&self.node_path(&["status"]), Patch::Strategic, patch);
        Ok(self.api.call(call).await.map(drop)?)
    }

    fn path(&self) -> String {
        path(API, "", &["csinodes", &self.node_name])
    }

    fn node_path(&self, part: &[&str]) -> String {
        let mut rest = vec!["nodes", self.node_name.as_str()];
        rest.extend(part);
        path("api/v1", "", &rest)
    }
}
