//! A node of a real cluster: the real program and a real containerd beside a real kube-apiserver with its etcd, each
//! test with its own in namespaces of their own.
//!
//! `KUBEBUILDER_ASSETS` names a directory with `kube-apiserver`, `etcd` and `kubectl`, as envtest has it; a
//! `kube-controller-manager` in it is used. Without it a test says in one line that it was not run, and why.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

#[path = "../fake_api/certificates.rs"]
#[expect(dead_code, reason = "other tests use other parts of it")]
mod certificates;
mod cluster;
mod control_plane;
#[path = "../fake_api/der.rs"]
mod der;
#[path = "../fake_api/identity.rs"]
#[expect(dead_code, reason = "other tests use other parts of it")]
mod identity;
#[path = "../containerd/node/mod.rs"]
#[expect(dead_code, unused_imports, reason = "other tests ask for other things")]
mod node;
mod nodes;
mod pods;
mod streams;
mod workloads;
