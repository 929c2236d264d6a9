//! A node of a real cluster: the real program and containerd beside a real kube-apiserver and etcd. Each test has its
//! own in its own namespaces.
//!
//! `KUBEBUILDER_ASSETS` names a directory with `kube-apiserver`, `etcd` and `kubectl`, like envtest's. A
//! `kube-controller-manager` in it is used, and the tests that need them use `kube-scheduler`, `kubeadm`, `kube-proxy`,
//! `coredns` and `flanneld`. Without the variable, or without a program that it needs, each test prints one line that
//! says why it did not run.

mod api_endpoint;
mod claims;
mod cluster;
mod control_plane;
mod crowd;
mod density;
mod fleet;
mod kubeadm;
mod nodes;
mod pods;
mod reenrolment;
mod streams;
mod workloads;

use crate::containerd::node;
use crate::fake_api::{certificates, der, identity};
