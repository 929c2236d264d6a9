//! Builders for short test manifests.

use std::fmt::Write;

/// The image of the test containers.
pub(crate) const BUSYBOX: &str = "localhost/coracle/busybox:1";

/// A script that runs until SIGTERM and then exits at once.
pub(crate) const STAY: &str = "trap exit TERM; sleep 100000 & wait";

/// A pod called `name`. Further lines of its spec can be added.
pub(crate) struct Manifest {
    name: String,
    init_containers: String,
    containers: String,
    spec: String,
}

impl Manifest {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), init_containers: String::new(), containers: String::new(), spec: String::new() }
    }

    /// A container that runs a shell script.
    pub(crate) fn container(self, name: &str, script: &str) -> Self {
        self.container_with(name, script, "")
    }

    /// A container with additional fields in YAML flow style, such as `volumeMounts: [{name: data, mountPath:
    /// /data}]`.
    pub(crate) fn container_with(mut self, name: &str, script: &str, fields: &str) -> Self {
        push_container(&mut self.containers, name, script, fields);
        self
    }

    pub(crate) fn init_container(self, name: &str, script: &str) -> Self {
        self.init_container_with(name, script, "")
    }

    pub(crate) fn init_container_with(mut self, name: &str, script: &str, fields: &str) -> Self {
        push_container(&mut self.init_containers, name, script, fields);
        self
    }

    /// Adds a line to the spec, such as `restartPolicy: Never`.
    pub(crate) fn spec(mut self, line: &str) -> Self {
        writeln!(self.spec, "  {line}").unwrap();
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> String {
        let Self { name, init_containers, containers, spec } = self;
        let init =
            if init_containers.is_empty() { String::new() } else { format!("  initContainers:\n{init_containers}") };
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n{spec}{init}  containers:\n{containers}")
    }
}

fn push_container(list: &mut String, name: &str, script: &str, fields: &str) {
    let script = serde_json::to_string(script).unwrap();
    let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
    writeln!(list, "  - {{name: {name}, image: \"{BUSYBOX}\", command: [sh, -c, {script}]{fields}}}").unwrap();
}
