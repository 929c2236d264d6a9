//! Faults of the container runtime: the real program with a fake runtime.

mod command_line;
mod cpu_manager;
mod crash_loop;
mod devices;
mod events;
mod exits;
mod hooks;
mod images;
mod lasting;
mod life;
mod log;
mod logs;
mod manifests;
mod meanwhile;
mod network;
pub(crate) mod node;
mod pod_resources;
mod probes;
mod registry_sources;
mod resizes;
mod runtime;
mod shutdown;
mod start_metrics;
pub(crate) mod upgrades;
mod url_pods;
mod volumes;
mod watchdog;
