//! The runtime's own view of its containers, to check the agent against.

use serde_json::Value;

use super::{NODE_NAME, Node, crio};

/// A sandbox or container in containerd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) pod: String,
    /// Empty for a sandbox.
    pub(crate) container: String,
    pub(crate) id: String,
    /// The PID inside the private namespaces; 0 if no process runs.
    pub(crate) pid: u32,
}

impl Task {
    pub(crate) fn is_running(&self) -> bool {
        self.pid != 0
    }
}

impl Node {
    /// All sandboxes and containers, running or not, sorted.
    pub(crate) fn tasks(&self) -> Vec<Task> {
        if crio::programs().is_some() { self.crio_tasks() } else { self.tasks_that(&[]) }
    }

    /// The sandboxes and containers of a manifest's pod.
    pub(crate) fn tasks_of(&self, manifest: &str) -> Vec<Task> {
        if crio::programs().is_some() {
            let pod = format!("{manifest}-{NODE_NAME}");
            return self.crio_tasks().into_iter().filter(|task| task.pod == pod).collect();
        }
        self.tasks_that(&[&format!("labels.\"io.kubernetes.pod.name\"=={manifest}-{NODE_NAME}")])
    }

    fn tasks_that(&self, filter: &[&str]) -> Vec<Task> {
        let running = self.ctr(&["tasks", "list"]);
        let pid_of = |id: &str| {
            let mut words = running.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            words.find_map(|line| match line[..] {
                [task, pid, "RUNNING"] if task == id => pid.parse().ok(),
                _ => None,
            })
        };
        let ids = self.ctr(&[&["containers", "list", "--quiet"], filter].concat());
        let mut tasks: Vec<Task> = ids.lines().filter_map(|id| self.task(id, pid_of(id).unwrap_or_default())).collect();
        tasks.sort();
        tasks
    }

    /// `None` if the container was removed meanwhile.
    fn task(&self, id: &str, pid: u32) -> Option<Task> {
        let done = self.ctr_command(&["containers", "info", id]).output().unwrap();
        let info: Value = serde_json::from_slice(&done.stdout).ok()?;
        let label = |name: &str| info["Labels"][name].as_str().unwrap_or_default().to_owned();
        let container = label("io.kubernetes.container.name");
        Some(Task { pod: label("io.kubernetes.pod.name"), container, id: id.to_owned(), pid })
    }

    /// The running containers of a manifest's pod, without sandboxes.
    pub(crate) fn running_containers(&self, manifest: &str) -> Vec<Task> {
        self.tasks_of(manifest).into_iter().filter(|task| !task.container.is_empty() && task.is_running()).collect()
    }

    #[track_caller]
    pub(crate) fn ctr(&self, arguments: &[&str]) -> String {
        let done = self.ctr_command(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "ctr {}: {}", arguments.join(" "), error.trim());
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}
