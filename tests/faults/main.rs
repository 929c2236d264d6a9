//! Faults of the container runtime: the real program with a fake runtime.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

mod cpu_manager;
mod crash_loop;
#[path = "../device_plugin/mod.rs"]
mod device_plugin;
mod devices;
mod events;
mod exits;
#[path = "../fake_cri/mod.rs"]
#[expect(dead_code, reason = "other tests use other parts of the fake runtime")]
mod fake_cri;
#[path = "../fake_logind/mod.rs"]
mod fake_logind;
#[path = "../grpc_plugin/mod.rs"]
mod grpc_plugin;
mod hooks;
mod images;
mod lasting;
mod life;
mod log;
mod logs;
mod manifests;
mod meanwhile;
mod network;
mod node;
mod pod_resources;
mod probes;
mod resizes;
mod runtime;
mod shutdown;
mod start_metrics;
mod url_pods;
mod volumes;
mod watchdog;
