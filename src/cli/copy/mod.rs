//! `coracle cp`: copies files between this machine and a running container, through the mount namespace of the
//! container's processes. The image needs no program for it.

mod tree;

use std::env;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::command_table::Copy;
use super::find_pod::{container_of, find_pod, is_running};
use super::{failed, print};
use crate::cli::images::size;
use crate::types::api::Pod;
use tree::{Copied, Target};

pub(super) fn run(command: &Copy) -> ExitCode {
    match copy(command) {
        Ok(Copied { files: 1, bytes }) => print(&format!("copied 1 file, {}\n", size(bytes))),
        Ok(Copied { files, bytes }) => print(&format!("copied {files} files, {}\n", size(bytes))),
        Err(line) => failed(&line),
    }
}

fn copy(command: &Copy) -> Result<Copied, String> {
    let [source, target] = &*command.paths else { return Err(USAGE.to_owned()) };
    let (from, to) = (CopyPath::of(source), CopyPath::of(target));
    if from.pod.is_some() == to.pod.is_some() {
        return Err(USAGE.to_owned());
    }
    let into_container = to.pod.is_some();
    let (from_root, to_root) = (root(command, from)?, root(command, to)?);
    let source = tree::hold(&from_root, &from.absolute()?).map_err(|error| format!("{source}: {error}"))?;
    let target = Target::find(&to_root, &to.absolute()?, from.name()).map_err(|error| format!("{target}: {error}"))?;
    tree::copy(source, &target, into_container)
}

const USAGE: &str = "expected POD:PATH and a path of this machine, in either order, as in: coracle cp web:/etc/hosts .";

/// `PATH` or `[NAMESPACE/]POD:PATH`. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyPath<'a> {
    pod: Option<&'a str>,
    path: &'a str,
}

impl<'a> CopyPath<'a> {
    /// A path of this machine that has a colon begins with `/` or `.`.
    fn of(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((pod, path)) if !pod.is_empty() && !text.starts_with(['/', '.']) => Self { pod: Some(pod), path },
            _ => Self { pod: None, path: text },
        }
    }

    fn absolute(&self) -> Result<PathBuf, String> {
        let here = if self.pod.is_some() { Ok(PathBuf::from("/")) } else { env::current_dir() };
        here.map(|here| here.join(self.path)).map_err(|error| format!("the current directory: {error}"))
    }

    /// The name of the copy in a directory.
    fn name(&self) -> Option<&'a std::ffi::OsStr> {
        Path::new(self.path).file_name()
    }
}

/// The root directory of the container or of this machine.
fn root(command: &Copy, path: CopyPath<'_>) -> Result<OwnedFd, String> {
    let root = match path.pod {
        None => PathBuf::from("/"),
        Some(name) => {
            let (pod, _) = find_pod(&command.local_socket, name, command.namespace.as_deref())?;
            let container = container_of(&pod, command.container.as_deref())?;
            is_running(&pod, container)?;
            let process = process_of(&pod, container)
                .ok_or_else(|| format!("container {container} of pod {name} has no process on this machine"))?;
            PathBuf::from(format!("/proc/{process}/root"))
        }
    };
    openat(CWD, &root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("{}: {error}; copying needs root", root.display()))
}

/// The oldest process in the container's cgroup, whose path has the container's id with every runtime.
fn process_of(pod: &Pod, container: &str) -> Option<u32> {
    let mut statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let status = statuses.find(|status| status.name == container)?;
    let id = status.container_id.rsplit("//").next().filter(|id| !id.is_empty())?;
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let inside = all.filter(|process| {
        fs::read_to_string(format!("/proc/{process}/cgroup")).is_ok_and(|groups| groups.contains(id))
    });
    // Pids start again at 1 when all are used: by the start time in clock ticks.
    inside.min_by_key(|process| start_time(*process))
}

/// Clock ticks since boot; the greatest for a process that has ended.
fn start_time(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in brackets, may have spaces.
    let fields = text.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().nth(19).and_then(|ticks| ticks.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_pod_has_a_colon_and_no_leading_dot_or_slash() {
        let of = |text| (CopyPath::of(text).pod, CopyPath::of(text).path);
        assert_eq!(of("web:/etc/hosts"), (Some("web"), "/etc/hosts"));
        assert_eq!(of("shop/web:data"), (Some("shop/web"), "data"));
        for own in ["a", "./web:a", "/tmp/web:a", ":a", ""] {
            assert_eq!(of(own), (None, own));
        }
    }

    #[test]
    fn own_start_time_is_known() {
        let own = start_time(std::process::id());
        assert!(own > 0 && own < u64::MAX && start_time(u32::MAX) == u64::MAX);
    }
}
