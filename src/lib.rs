//! Coracle: a kubelet for small boards.
//!
//! The folders are layers; a module uses the layers below its own (ARCHITECTURE.md has the picture, and a test keeps
//! it). `pub` here means: used by the binary, the tests, the benchmarks or the fuzz targets.

// The log macro is used by every layer.
#[macro_use]
pub mod types;
pub mod control;
pub mod kubelet;
pub mod platform;
pub mod protocol;
mod state;

// Wiring: may use every layer.
mod cli;
mod node_agent;
#[cfg(test)]
mod simulation;

// Test modules shared with integration tests refer to this crate by its name.
#[cfg(test)]
extern crate self as coracle;

pub use cli::main;
