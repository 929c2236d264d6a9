//! Verifies a cluster on first contact, by bootstrap token and CA pin. Pure.

mod authority;
mod cluster_info;
mod token;

pub(crate) use authority::{Pin, pinned_authority};
pub(crate) use cluster_info::{ClusterInfoError, verified_kubeconfig};
pub(crate) use token::BootstrapToken;
