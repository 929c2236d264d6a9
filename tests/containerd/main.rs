//! Static pods on a real containerd. Each test has its own runtime and agent in their own namespaces.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

mod admission;
mod adoption;
mod configs;
mod crash_safety;
mod csi;
#[path = "../csi_driver/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the driver")]
mod csi_driver;
mod deltas;
mod devices;
mod door;
mod endurance;
mod events;
mod eviction;
mod exec;
#[path = "../fake_api/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the fake server")]
mod fake_api;
mod fetch;
mod figures;
mod golden;
#[path = "../grpc_plugin/mod.rs"]
mod grpc_plugin;
mod hooks;
mod hostile;
mod image_archives;
mod images;
mod local_pods;
mod local_volumes;
mod logs;
mod manifests;
mod node;
mod port_forward;
mod power_cut;
mod probes;
mod processors;
mod registry;
mod rest;
mod restart;
mod restart_rules;
mod runtime_outage;
mod security;
mod start;
mod status_page;
mod tls_server;
mod updates;
mod versions;
mod volumes;
mod web_sockets;
