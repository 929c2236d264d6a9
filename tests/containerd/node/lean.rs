//! A node with the lean profile: the configuration of the runtime that the program prints, and its shims.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Node, cni_plugins, coracle, may_lower_oom_scores};

impl Node {
    /// A node whose containerd has the printed configuration, in the directories of the test. Nothing runs yet.
    pub(crate) fn bare_lean() -> Self {
        let mut node = Self::bare();
        let unit = node.runtime_config(&["--unit"]);
        let variables =
            unit.lines().find_map(|line| line.strip_prefix("Environment=")).expect("the unit has variables");
        node.runtime_environment = variables.split(' ').map(str::to_owned).collect();
        let printed = ["--pause-image", "localhost/coracle/pause:1", "--cni-bin-dir", cni_plugins(), "--crun", "none"];
        let config = node.in_own_directories(&node.runtime_config(&printed));
        fs::write(node.folder().join("containerd.toml"), config).unwrap();
        node.add_arguments(&["--runtime-profile", "lean"]);
        node
    }

    /// What `coracle runtime-config containerd` prints. There is no agent and no containerd to ask.
    pub(crate) fn runtime_config(&self, flags: &[&str]) -> String {
        let mut command = self.enclosure().command(coracle());
        let output = command.args(["runtime-config", "containerd"]).args(flags).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn in_own_directories(&self, printed: &str) -> String {
        let folder = self.folder().display();
        let directories =
            format!("root = \"{folder}/containerd/root\"\nstate = \"{folder}/containerd/state\"\ndisabled_plugins = ");
        let restrict = !may_lower_oom_scores();
        let own = format!("restrict_oom_score_adj = {restrict}\ndisable_apparmor = true\n");
        let conf = format!("conf_dir = \"{folder}/cni\"\nbin_dir");
        let mut config = printed.replace("disabled_plugins = ", &directories).replacen("bin_dir", &conf, 1);
        let name = if printed.contains("\nversion = 2\n") { "grpc.v1.cri" } else { "cri.v1.runtime" };
        let table = format!("[plugins.\"io.containerd.{name}\"]\n");
        match config.contains(&table) {
            true => config = config.replace(&table, &format!("{table}{own}")),
            false => config.push_str(&format!("\n{table}{own}")),
        }
        config.push_str(&format!("\n[grpc]\naddress = \"{}\"\n", self.runtime_socket().display()));
        config
    }

    /// The directories of the shims in procfs.
    pub(crate) fn shims(&self) -> Vec<PathBuf> {
        self.serving("containerd-shim-runc-v2")
    }

    /// The directories of the processes of a program in procfs, which serve and do not only start or remove a shim.
    pub(crate) fn serving(&self, program: &str) -> Vec<PathBuf> {
        let processes = fs::read_dir(self.enclosure().path(Path::new("/proc"))).unwrap().flatten();
        let is_it = |process: &PathBuf| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            let own = words.next().and_then(|path| path.rsplit(|byte| *byte == b'/').next());
            own == Some(program.as_bytes()) && !words.any(|word| word == b"start" || word == b"delete")
        };
        processes.map(|process| process.path()).filter(is_it).collect()
    }

    /// Kills a shim of [`Self::shims`].
    pub(crate) fn kill_shim(&self, shim: &Path) {
        let pid = shim.file_name().unwrap().to_str().unwrap();
        self.enclosure().run(&["kill", "-KILL", pid]);
    }
}

/// The number of pause processes and containers of a shim.
pub(crate) fn shim_children(shim: &Path) -> usize {
    let threads = fs::read_dir(shim.join("task")).unwrap().flatten();
    // Each thread has the children that it has adopted.
    let texts = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    texts.map(|text| text.split_whitespace().count()).sum()
}
