//! The configuration of containerd. Pure.

use super::board::{Board, quoted};
use crate::kubelet::kuberuntime::SHIM_GROUP;
use crate::platform::config::CgroupDriver;
use crate::types::sorted::SortOnce;

/// The error is one line.
pub(super) fn configuration(board: &Board) -> Result<String, String> {
    let version = board.version.ok_or("containerd is not here: name its version, as --runtime-version 2.1")?;
    if version < MIN_CONTAINERD_VERSION {
        return Err(format!("expected containerd 1.6 or newer, found {}.{}", version.0, version.1));
    }
    let mut text = introduction(version);
    let tables = if version.0 == 1 { Tables::OF_1 } else { Tables::OF_2 };
    text.push_str(&format!("version = {}\n\n# A kubelet does not use these.\ndisabled_plugins = [\n", tables.version));
    for plugin in unused_plugins(version, board.snapshotter.as_deref().unwrap_or(DEFAULT_SNAPSHOTTER)) {
        text.push_str(&format!("  \"{plugin}\",\n"));
    }
    text.push_str("]\n");
    images(board, &tables, &mut text);
    network(board, version, &tables, &mut text);
    runc(board, &tables, &mut text);
    Ok(text)
}

/// The first version with the CRI of today.
const MIN_CONTAINERD_VERSION: (u32, u32) = (1, 6);
const DEFAULT_SNAPSHOTTER: &str = "overlayfs";

fn introduction((major, minor): (u32, u32)) -> String {
    format!(
        "# containerd {major}.{minor} on a board with little memory, printed by `coracle runtime-config containerd`.\n\
         #\n\
         # This file belongs to /etc/containerd/config.toml, in place of the one that is there: keep that, and add your\n\
         # own settings to this one. Its second part, `coracle runtime-config containerd --unit`, says where it belongs.\n\
         # Then systemctl restart containerd. Running pods keep their shims until their sandboxes are created again.\n\
         #\n\
         # The agent needs --runtime-profile=lean, as in CORACLE_ARGS of /etc/default/coracle.\n"
    )
}

/// Names that differ between the versions of the configuration.
struct Tables {
    version: u32,
    runtime: &'static str,
    images: &'static str,
    registry: &'static str,
}

impl Tables {
    const OF_1: Self = Self {
        version: 2,
        runtime: "plugins.\"io.containerd.grpc.v1.cri\"",
        images: "plugins.\"io.containerd.grpc.v1.cri\".containerd",
        registry: "plugins.\"io.containerd.grpc.v1.cri\".registry",
    };
    const OF_2: Self = Self {
        version: 3,
        runtime: "plugins.\"io.containerd.cri.v1.runtime\"",
        images: "plugins.\"io.containerd.cri.v1.images\"",
        registry: "plugins.\"io.containerd.cri.v1.images\".registry",
    };
}

/// Other plugins need those of `io.containerd.runtime.v1` (1.x), `io.containerd.image-verifier.v1` (2.x) and overlayfs.
fn unused_plugins((major, minor): (u32, u32), snapshotter: &str) -> Vec<String> {
    let mut plugins: Vec<String> = ["aufs", "blockfile", "btrfs", "devmapper", "erofs", "native", "zfs"]
        .into_iter()
        .filter(|name| match *name {
            "aufs" => major == 1,
            "blockfile" => (major, minor) != MIN_CONTAINERD_VERSION,
            "erofs" => major > 1,
            _ => true,
        })
        .filter(|name| *name != snapshotter)
        .map(|name| format!("io.containerd.snapshotter.v1.{name}"))
        .collect();
    let monitors: &[&str] = match major {
        1 => &["io.containerd.internal.v1.restart", "io.containerd.monitor.v1.cgroups"],
        _ => &[
            "io.containerd.differ.v1.erofs",
            "io.containerd.monitor.container.v1.restart",
            "io.containerd.monitor.task.v1.cgroups",
        ],
    };
    let later: &[&str] =
        &["io.containerd.internal.v1.tracing", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"];
    let later = if (major, minor) == MIN_CONTAINERD_VERSION { &[] } else { later };
    plugins.extend(monitors.iter().chain(later).map(|&name| name.to_owned()));
    plugins.sort_once();
    plugins
}

fn images(board: &Board, tables: &Tables, text: &mut String) {
    if let Some(image) = &board.pause_image {
        let (table, key) = match tables.version {
            2 => (tables.runtime.to_owned(), "sandbox_image"),
            _ => (format!("{}.pinned_images", tables.images), "sandbox"),
        };
        text.push_str(&format!("\n[{table}]\n{key} = {}\n", quoted(image)));
    }
    if let Some(snapshotter) = board.snapshotter.as_deref().filter(|name| *name != DEFAULT_SNAPSHOTTER) {
        text.push_str(&format!("\n[{}]\nsnapshotter = {}\n", tables.images, quoted(snapshotter)));
    }
    if let Some(directory) = &board.registry_hosts_directory {
        text.push_str(&format!("\n[{}]\nconfig_path = {}\n", tables.registry, quoted(directory)));
    }
}

fn network(board: &Board, version: (u32, u32), tables: &Tables, text: &mut String) {
    let Board { cni_config_directory, cni_plugin_directories, .. } = board;
    if cni_config_directory.is_none() && cni_plugin_directories.is_empty() {
        return;
    }
    text.push_str(&format!("\n[{}.cni]\n", tables.runtime));
    if let Some(directory) = cni_config_directory {
        text.push_str(&format!("conf_dir = {}\n", quoted(directory)));
    }
    match (version >= (2, 1), cni_plugin_directories.first()) {
        (_, None) => {}
        (false, Some(directory)) => text.push_str(&format!("bin_dir = {}\n", quoted(directory))),
        (true, Some(_)) => {
            let all: Vec<String> = cni_plugin_directories.iter().map(|directory| quoted(directory)).collect();
            text.push_str(&format!("bin_dirs = [{}]\n", all.join(", ")));
        }
    }
}

fn runc(board: &Board, tables: &Tables, text: &mut String) {
    let table = format!("{}.containerd.runtimes.runc", tables.runtime);
    text.push_str(&format!(
        "\n[{table}]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         # Pods with the same group share a shim. The agent chooses the groups.\n\
         pod_annotations = [\"{SHIM_GROUP}\"]\n"
    ));
    if let Some(shim) = &board.shim {
        text.push_str(&format!("runtime_path = {}\n", quoted(shim)));
    }
    let is_systemd = board.driver == CgroupDriver::Systemd;
    text.push_str(&format!(
        "\n[{table}.options]\n\
         # The driver of the agent: `cgroupDriver`.\n\
         SystemdCgroup = {is_systemd}\n"
    ));
    if let Some(crun) = &board.crun {
        text.push_str(&format!(
            "# Starts faster than runc, and takes less memory meanwhile.\nBinaryName = {}\n",
            quoted(crun)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::board;
    use super::*;

    fn of(board: &Board) -> String {
        configuration(board).unwrap()
    }

    #[test]
    fn containerd_1_and_2_have_their_own_versions_and_tables() {
        for (version, first) in [((1, 6), "version = 2"), ((1, 7), "version = 2"), ((2, 0), "version = 3")] {
            let text = of(&board(version));
            assert!(text.lines().any(|line| line == first), "{text}");
            let runc = if version.0 == 1 { "grpc.v1.cri" } else { "cri.v1.runtime" };
            let table = format!("[plugins.\"io.containerd.{runc}\".containerd.runtimes.runc]\n");
            assert!(text.contains(&table) && text.contains("pod_annotations = [\"io.containerd.runc.v2.group\"]\n"));
        }
        assert!(configuration(&board((1, 5))).unwrap_err().contains("1.6 or newer, found 1.5"));
        let unknown = Board { version: None, ..board((1, 6)) };
        assert!(configuration(&unknown).unwrap_err().contains("--runtime-version"));
    }

    #[test]
    fn no_plugin_is_off_that_another_one_needs() {
        let plugins = |version| unused_plugins(version, "overlayfs");
        for version in [(1, 6), (1, 7), (2, 0), (2, 1)] {
            let text = plugins(version).join(" ");
            for needed in ["overlayfs", "runtime.v1", "image-verifier", "grpc.v1", "transfer", "streaming", "walking"] {
                assert!(!text.contains(needed), "{needed} in {text}");
            }
            assert!(plugins(version).is_sorted());
        }
        assert_eq!((plugins((1, 6)).len(), plugins((1, 7)).len(), plugins((2, 1)).len()), (7, 11, 12));
        assert!(plugins((1, 6)).contains(&"io.containerd.monitor.v1.cgroups".to_owned()));
        assert!(plugins((2, 1)).contains(&"io.containerd.monitor.task.v1.cgroups".to_owned()));
        assert!(!unused_plugins((2, 1), "btrfs").contains(&"io.containerd.snapshotter.v1.btrfs".to_owned()));
    }

    #[test]
    fn settings_of_the_board_are_in_their_tables() {
        let whole = |version| Board {
            driver: CgroupDriver::Systemd,
            pause_image: Some("localhost/pause:1".to_owned()),
            snapshotter: Some("native".to_owned()),
            cni_config_directory: Some("/etc/cni/net.d".to_owned()),
            cni_plugin_directories: vec!["/usr/lib/cni".to_owned()],
            registry_hosts_directory: Some("/etc/containerd/certs.d".to_owned()),
            crun: Some("/usr/bin/crun".to_owned()),
            shim: Some("/usr/local/bin/shim".to_owned()),
            ..board(version)
        };
        let both =
            ["SystemdCgroup = true\n", "BinaryName = \"/usr/bin/crun\"\n", "runtime_path = \"/usr/local/bin/shim\"\n"];
        let one = [
            "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"localhost/pause:1\"\n",
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n",
            "[plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"/etc/containerd/certs.d\"\n",
            "conf_dir = \"/etc/cni/net.d\"\nbin_dir = \"/usr/lib/cni\"\n",
        ];
        let two = [
            "[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"localhost/pause:1\"\n",
            "[plugins.\"io.containerd.cri.v1.images\"]\nsnapshotter = \"native\"\n",
            "[plugins.\"io.containerd.cri.v1.images\".registry]\nconfig_path = \"/etc/containerd/certs.d\"\n",
            "conf_dir = \"/etc/cni/net.d\"\nbin_dirs = [\"/usr/lib/cni\"]\n",
        ];
        for (version, own) in [((1, 7), one), ((2, 1), two)] {
            let text = of(&whole(version));
            both.iter().chain(&own).for_each(|part| assert!(text.contains(part), "{part} not in {text}"));
        }
        assert!(of(&whole((2, 0))).contains("\nbin_dir = "));
    }
}
