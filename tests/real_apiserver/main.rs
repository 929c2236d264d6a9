//! A node of a real cluster: the real program and containerd beside a real kube-apiserver and etcd. Each test has its
//! own in its own namespaces.
//!
//! `KUBEBUILDER_ASSETS` names a directory with `kube-apiserver`, `etcd` and `kubectl`, like envtest's. A
//! `kube-controller-manager` in it is used, and a `kube-scheduler` by the tests that need it. Without the variable, each
//! test prints one line that says why it did not run.
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
mod claims;
mod cluster;
mod control_plane;
mod crowd;
mod density;
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
