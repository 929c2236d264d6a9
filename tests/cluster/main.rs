//! The agent as a node of a cluster: the real program beside a fake runtime and a fake API server.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

mod burst;
mod certificates;
mod claims;
mod credential_tokens;
mod csi;
#[path = "../csi_driver/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the driver")]
mod csi_driver;
#[path = "../device_plugin/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the plugin")]
mod device_plugin;
mod devices;
mod door;
mod dra;
mod dra_costs;
mod dra_device_files;
#[path = "../dra_driver/mod.rs"]
mod dra_driver;
mod dra_endings;
mod dra_health;
mod endings;
mod endurance;
mod events;
#[path = "../fake_api/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the fake server")]
mod fake_api;
#[path = "../fake_cri/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the fake runtime")]
mod fake_cri;
#[path = "../fake_logind/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the fake logind")]
mod fake_logind;
mod forward_proxy;
mod golden;
#[path = "../grpc_plugin/mod.rs"]
mod grpc_plugin;
mod histories;
mod inside;
mod joined;
mod joining;
mod large_pods;
mod lease;
#[path = "../faults/node.rs"]
#[expect(dead_code, unused_imports, reason = "other tests ask for other things")]
mod node;
mod offline;
mod outages;
mod pods;
mod proxies;
mod registration;
mod resizes;
mod secrets;
mod serving;
mod shared_images;
mod shutdown;
mod status;
mod strangers;
mod sync;
mod tracing;
mod trust_bundles;
