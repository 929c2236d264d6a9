//! Reads the facts about the kernel below a root directory, which is `/` but in tests.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::facts::{Feature, KernelFacts};
use super::kernel::{FEATURES, FILTERS};
use super::kernel_config::{KernelConfig, OptionState, has_module};
use crate::platform::host::file;
use crate::platform::host::procfs::Procfs;

/// Size limit of the files about modules and of the kernel's configuration.
const MAX_KERNEL_FILE_BYTES: u64 = 4 << 20;

/// Files that exist if the running kernel has the feature. They say more than its configuration, which a command line
/// may override.
const WITNESSES: [(&str, &str); 8] = [
    ("mount namespaces", "proc/self/ns/mnt"),
    ("pid namespaces", "proc/self/ns/pid"),
    ("network namespaces", "proc/self/ns/net"),
    ("IPC namespaces", "proc/self/ns/ipc"),
    ("UTS namespaces", "proc/self/ns/uts"),
    ("user namespaces", "proc/self/ns/user"),
    ("seccomp", "proc/sys/kernel/seccomp"),
    ("pressure", "proc/pressure/memory"),
];

pub(super) fn read(root: &Path) -> KernelFacts {
    let procfs = Procfs::at(root.join("proc"));
    let release: String = procfs.sysctl("kernel/osrelease").unwrap_or_default();
    let kernel = Kernel {
        root,
        config: config(root, &release),
        modules: ["modules.builtin", "modules.dep"]
            .map(|name| text(&root.join("lib/modules").join(&release).join(name))),
        filesystems: text(&root.join("proc/filesystems")).unwrap_or_default(),
    };
    let named = FEATURES.iter().map(|feature| (feature.name, feature.option, feature.module)).chain(FILTERS);
    KernelFacts {
        machine: procfs.sysctl("kernel/arch").unwrap_or_default(),
        features: named.map(|(name, option, module)| (name, kernel.feature(name, option, module))).collect(),
        most_user_namespaces: procfs.sysctl("user/max_user_namespaces"),
        controllers: text(&root.join("sys/fs/cgroup/cgroup.controllers"))
            .map(|text| text.split_whitespace().map(str::to_owned).collect()),
        swap_area: procfs.swap_area(),
        release,
    }
}

/// The sources about the features of a kernel.
struct Kernel<'a> {
    root: &'a Path,
    config: Option<KernelConfig>,
    /// Those in the kernel, and those that can be loaded.
    modules: [Option<String>; 2],
    filesystems: String,
}

impl Kernel<'_> {
    fn feature(&self, name: &str, option: &str, module: &str) -> Feature {
        let has_procfs = self.root.join("proc/self").exists();
        if let Some((_, path)) = WITNESSES.iter().find(|(witnessed, _)| *witnessed == name).filter(|_| has_procfs) {
            return if self.root.join(path).exists() { Feature::Present } else { Feature::Missing };
        }
        let is_file_system = self.filesystems.lines().any(|line| line.split_whitespace().last() == Some(name));
        let is_loaded = !module.is_empty() && self.root.join("sys/module").join(module).is_dir();
        let is_known = self.modules.iter().flatten().any(|list| has_module(list, module));
        if is_file_system || is_loaded || is_known {
            return Feature::Present;
        }
        match self.config.as_ref().map(|config| config.option(option)) {
            Some(OptionState::BuiltIn) => Feature::Present,
            Some(OptionState::Off) => Feature::Missing,
            // The module is not installed, or nothing tells.
            Some(OptionState::Module) if self.modules.iter().any(Option::is_some) => Feature::Missing,
            Some(OptionState::Module) | None => Feature::Unknown,
        }
    }
}

fn config(root: &Path, release: &str) -> Option<KernelConfig> {
    if let Ok(packed) = File::open(root.join("proc/config.gz")) {
        let mut text = String::new();
        MultiGzDecoder::new(packed).take(MAX_KERNEL_FILE_BYTES).read_to_string(&mut text).ok()?;
        return Some(KernelConfig::parse(&text));
    }
    let places = [root.join(format!("boot/config-{release}")), root.join(format!("lib/modules/{release}/config"))];
    places.iter().find_map(|path| text(path)).map(|text| KernelConfig::parse(&text))
}

fn text(path: &Path) -> Option<String> {
    if fs::metadata(path).ok()?.len() == 0 {
        // Files of procfs and sysfs have no size.
        return fs::read_to_string(path).ok();
    }
    file::read_all(path, MAX_KERNEL_FILE_BYTES).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-doctor-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            Self(root).with("proc/self/ns/mnt", "").with("proc/sys/kernel/osrelease", "6.1.0\n")
        }

        fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[track_caller]
    fn expect(root: &Root, expected: &[(&str, Feature)]) {
        let facts = read(&root.0);
        for (name, feature) in expected {
            assert_eq!(facts.features.get(name), Some(feature), "{name}");
        }
    }

    #[test]
    fn features_come_from_procfs_and_modules_without_a_configuration() {
        let root = Root::new("procfs")
            .with("proc/filesystems", "nodev\ttmpfs\nnodev\toverlay\n")
            .with("lib/modules/6.1.0/modules.dep", "kernel/drivers/net/veth.ko.xz:\n")
            .with("sys/module/bridge/refcnt", "0")
            .with("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        expect(
            &root,
            &[
                ("mount namespaces", Feature::Present),
                ("pid namespaces", Feature::Missing),
                ("overlay", Feature::Present),
                ("veth", Feature::Present),
                ("bridge", Feature::Present),
                ("nftables", Feature::Unknown),
                ("seccomp", Feature::Missing),
            ],
        );
        let facts = read(&root.0);
        assert_eq!((facts.release.as_str(), facts.machine.as_str()), ("6.1.0", ""));
        assert_eq!(facts.controllers, Some(vec!["cpu".to_owned(), "memory".to_owned()]));
    }

    #[test]
    fn configuration_decides_what_nothing_else_shows() {
        let text = "CONFIG_BRIDGE=m\nCONFIG_VETH=y\n# CONFIG_OVERLAY_FS is not set\n";
        let root = Root::new("config").with("boot/config-6.1.0", text);
        let expected = [("bridge", Feature::Unknown), ("veth", Feature::Present), ("overlay", Feature::Missing)];
        expect(&root, &expected);
        // The module is not installed.
        let root = root.with("lib/modules/6.1.0/modules.dep", "kernel/x.ko:\n");
        expect(&root, &[("bridge", Feature::Missing)]);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"CONFIG_BRIDGE=y\n").unwrap();
        fs::write(root.0.join("proc/config.gz"), packed.finish().unwrap()).unwrap();
        expect(&root, &[("bridge", Feature::Present), ("veth", Feature::Missing)]);
    }
}
