//! The machine: procfs, files, mounts, processes, clocks.

pub(crate) mod boot_timer;
pub(crate) mod changed_file;
pub(crate) mod clock;
pub(crate) mod directories;
pub(crate) mod disk_usage;
pub(crate) mod durable;
pub(crate) mod file;
pub(crate) mod file_system;
pub(crate) mod file_watch;
pub(crate) mod kernel_log;
pub(crate) mod link_state;
pub(crate) mod memory_pressure;
pub(crate) mod mounts;
pub(crate) mod open_beneath;
pub(crate) mod own_process;
pub(crate) mod pidfd;
pub(crate) mod process;
pub(crate) mod procfs;
pub(crate) mod program;
pub(crate) mod regular_file;
pub(crate) mod remove_tree;
pub(crate) mod selinux;
pub(crate) mod signals;
pub(crate) mod thread_state;
pub(crate) mod time_mark;
pub(crate) mod wall_timer;
