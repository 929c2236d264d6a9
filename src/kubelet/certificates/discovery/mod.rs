//! Whether to believe a cluster that is met for the first time: a token, and the digest of its authority's key. Pure.

mod authority;
mod cluster_info;
mod token;

pub(crate) use authority::{Pin, check_authority};
pub(crate) use cluster_info::{ClusterInfoError, verified_kubeconfig};
pub(crate) use token::BootstrapToken;
