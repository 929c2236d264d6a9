//! How a machine becomes a node of a cluster: with a command, or by a file that the agent finds.
//!
//! ```text
//! discover.rs    a token and a digest -> the cluster, verified, and its configuration of nodes
//! join.rs        writes the files of a node, all or none
//! join_step.rs   what the file of `--join-file` asks for                                      pure
//! join_task.rs   joins in the background until it has succeeded
//! layout.rs      paths of a cluster node's files                                              pure
//! staged.rs      several files, all or none
//! ```

mod discover;
mod join;
mod join_step;
mod join_task;
mod layout;
mod staged;

pub(crate) use discover::{DiscoveryQuery, discover};
pub(crate) use join::{name_of_board, server_url, write_node_files};
pub(crate) use join_task::{JoinLine, JoinTask};
pub(crate) use layout::{KUBERNETES_DIR, Layout, ROOT_DIR};
