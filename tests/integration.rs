//! All tests with real processes, and their fake peers, in one program, so that each fake is compiled once.
//!
//! A folder is a module. `cargo test --test integration cluster::` runs one. Checks of the tree itself (`architecture`,
//! `docs`, `manual`, `service_files`) are programs of their own: they compile in seconds, without the crate or the fakes.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

mod browser;
mod cluster;
mod command_line;
mod containerd;
mod csi_driver;
mod device_plugin;
mod dra_driver;
#[expect(dead_code, reason = "parts of it are for simulations")]
mod fake_api;
mod fake_api_itself;
#[expect(dead_code, reason = "parts of it are for simulations")]
mod fake_cri;
mod fake_cri_itself;
mod fake_logind;
mod faults;
mod fuzz_corpus;
mod grpc_plugin;
mod real_apiserver;
mod swtpm;
mod wait;
mod wire_judges;
