//! The registration client: asks a plugin who it is and tells it the verdict.
//!
//! Owns one connection per socket, as the CSI client does. Never retries.
//! Upstream: pkg/kubelet/pluginmanager/operationexecutor.

use std::time::Duration;

use tonic::transport::Channel;

use crate::call::{Call, MESSAGE_BYTES_MAX};
use crate::error::CallError;
use crate::pluginregistration::registration_client::RegistrationClient as Generated;
use crate::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use crate::socket::{EndpointError, Socket};

/// Limit of asking, as upstream: a plugin that is up answers from memory.
pub const INFO_LIMIT: Duration = Duration::from_secs(1);
/// Limit of telling the verdict, as upstream.
pub const NOTIFY_LIMIT: Duration = Duration::from_secs(5);

/// A plugin behind a socket in the registration directory.
#[derive(Debug, Clone)]
pub struct RegistrationClient {
    socket: String,
    client: Generated<Channel>,
}

impl RegistrationClient {
    /// Checks the path of the socket; connects on the first call. Must be
    /// called inside a tokio runtime.
    pub fn new(socket: &str) -> Result<Self, EndpointError> {
        let channel = Socket::parse(socket)?.channel();
        let client = Generated::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { socket: socket.to_owned(), client })
    }

    fn call(&self, name: &'static str, limit: Duration) -> Call<'_> {
        Call { driver: &self.socket, name, volume: String::new(), limit }
    }

    /// Who is there.
    pub async fn info(&self) -> Result<PluginInfo, CallError> {
        let mut client = self.client.clone();
        let rpc = |request| async move { client.get_info(request).await };
        self.call("GetInfo", INFO_LIMIT).send(InfoRequest {}, rpc).await
    }

    /// Tells the plugin that it is registered, or why not.
    pub async fn notify(&self, verdict: Result<(), &str>) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let request = RegistrationStatus {
            plugin_registered: verdict.is_ok(),
            error: verdict.err().unwrap_or_default().to_owned(),
        };
        let rpc = |request| async move { client.notify_registration_status(request).await };
        self.call("NotifyRegistrationStatus", NOTIFY_LIMIT).send(request, rpc).await.map(|_| ())
    }
}
