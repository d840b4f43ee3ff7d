//! What the driver says of itself, and registration.

use std::collections::BTreeMap;

use plugin_apis::RegistrationClient;
use plugin_apis::csi::NodeStageVolumeRequest;
use plugin_apis::csi::plugin_capability::{Type, service, volume_expansion};
use plugin_apis::pluginregistration::{CSI_PLUGIN, RegistrationStatus};

use super::Bed;
use crate::csi::{Code, CsiOptions, Fault, NodeCapability, Outcome, Rpc};

#[tokio::test]
async fn the_options_are_what_is_told() {
    let capabilities = [
        NodeCapability::StageUnstageVolume,
        NodeCapability::GetVolumeStats,
        NodeCapability::ExpandVolume,
        NodeCapability::VolumeCondition,
        NodeCapability::SingleNodeMultiWriter,
        NodeCapability::VolumeMountGroup,
    ];
    let topology = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
    let bed = Bed::with(CsiOptions {
        name: "other.klet.test".to_owned(),
        node_id: "n-7".to_owned(),
        capabilities: capabilities.into(),
        volumes_max: 5,
        topology: topology.clone(),
        ..Default::default()
    });
    assert!(bed.client.probe().await.unwrap());
    let info = bed.client.plugin_info().await.unwrap();
    assert_eq!(info.name, "other.klet.test");
    assert!(!info.vendor_version.is_empty());
    assert_eq!(bed.client.node_capabilities().await.unwrap(), capabilities.into());
    let info = bed.client.node_info().await.unwrap();
    assert_eq!((&info.node_id[..], info.max_volumes_per_node), ("n-7", 5));
    assert_eq!(info.accessible_topology.unwrap().segments, topology);
    let told = bed.client.plugin_capabilities().await.unwrap();
    let told: Vec<_> = told.into_iter().filter_map(|capability| capability.r#type).collect();
    let [Type::Service(service), Type::VolumeExpansion(expansion)] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(service.r#type(), service::Type::VolumeAccessibilityConstraints);
    assert_eq!(expansion.r#type(), volume_expansion::Type::Online);

    let bed = Bed::new(&[]);
    assert_eq!(bed.client.node_info().await.unwrap().accessible_topology, None);
    assert!(bed.client.plugin_capabilities().await.unwrap().is_empty());
}

#[tokio::test]
async fn calls_are_recorded_with_their_requests() {
    let bed = Bed::new(&[]);
    let mut request = bed.stage_request("v");
    request.secrets = BTreeMap::from([("key".to_owned(), "s3cret".to_owned())]);
    bed.client.probe().await.unwrap();
    bed.client.stage(request.clone()).await.unwrap_err();
    let calls = bed.driver.calls();
    let seen: Vec<_> =
        calls.iter().map(|call| (call.rpc, &call.volume[..], call.outcome)).collect();
    let expected = [
        (Rpc::Probe, "", Outcome::Answered(Code::Ok)),
        (Rpc::NodeStageVolume, "v", Outcome::Answered(Code::Internal)),
    ];
    assert_eq!(seen, expected);
    let requests = bed.driver.requests::<NodeStageVolumeRequest>();
    assert_eq!(requests, [request]);
    assert!(!format!("{requests:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_driver_registers_and_goes() {
    let mut bed = Bed::new(&[]);
    assert!(!bed.driver.registry_socket().exists());
    bed.driver.register().unwrap();
    let registry_socket = bed.driver.registry_socket().to_owned();
    assert!(registry_socket.parent().unwrap().ends_with("plugins_registry"));
    let client = RegistrationClient::new(registry_socket.to_str().unwrap()).unwrap();
    let info = client.info().await.unwrap();
    assert_eq!((&info.r#type[..], &info.name[..]), (CSI_PLUGIN, bed.driver.name()));
    assert_eq!(info.endpoint, bed.driver.socket().to_str().unwrap());
    assert_eq!(info.supported_versions, ["1.0.0"]);
    client.notify(Err("no such type")).await.unwrap();
    client.notify(Ok(())).await.unwrap();
    let told = |registered, error: &str| RegistrationStatus {
        plugin_registered: registered,
        error: error.to_owned(),
    };
    let expected = [told(false, "no such type"), told(true, "")];
    assert_eq!(bed.driver.requests::<RegistrationStatus>(), expected);

    // The registrar is a program of its own: it survives the driver.
    bed.driver.crash();
    assert!(client.info().await.is_ok());
    bed.driver.restart().unwrap();
    bed.driver.deregister();
    assert!(!registry_socket.exists());
    assert!(!client.info().await.unwrap_err().is_final());
    assert!(bed.client.probe().await.unwrap(), "the driver goes on");
    bed.driver.register().unwrap();
    bed.driver.inject(Rpc::GetInfo, Fault::crash());
    assert!(!client.info().await.unwrap_err().is_final());
    assert!(bed.driver.is_up());
}
