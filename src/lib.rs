//! Coracle: a kubelet that a small board can carry.
//!
//! The modules stand in layers; a module uses the layers below its own (ARCHITECTURE.md has the table, and a test
//! keeps it). `pub` here means: used by the binary, the tests, the benchmarks or the fuzz targets.

// Layer 0: words.
pub mod api;
mod cpu_set;
mod error;
#[macro_use]
mod log;
pub mod sorted;
mod time;

// Layer 1: bytes in, bytes out.
mod metrics;
pub mod wire;

// Layer 2: the outside world.
mod apiserver;
mod cgroups;
mod config;
pub mod cri;
mod dbus;
mod host;
mod net;
mod plugin_registry;
pub mod rpc;
pub mod rt;

// Layer 3: the books.
mod objects;
mod pods;

// Layer 4: one folder for each thing a kubelet is responsible for.
mod admission;
mod certificates;
mod container_manager;
mod csi;
mod devices;
mod eviction;
pub mod images;
mod kuberuntime;
mod logs;
mod node;
mod node_shutdown;
pub mod offline;
mod probes;
mod resource_managers;
mod stats;
mod status;
mod volumes;

// Layer 5: where events meet.
mod cluster;
mod pleg;
pub mod pod_sources;
mod pod_workers;
mod server;
mod sync_loop;

// Layer 6: wiring.
mod cli;
mod node_agent;
#[cfg(test)]
mod simulation;

// Parts of the tests name this crate as they do from outside.
#[cfg(test)]
extern crate self as coracle;

pub use cli::main;
