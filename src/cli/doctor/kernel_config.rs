//! The kernel's configuration and its lists of modules. Pure.

use crate::types::sorted::SortedMap;

/// The options that are on.
#[derive(Debug)]
pub(super) struct KernelConfig(SortedMap<String, OptionState>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionState {
    BuiltIn,
    Module,
    Off,
}

impl KernelConfig {
    pub(super) fn parse(text: &str) -> Self {
        let options = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
            let state = if value == "m" { OptionState::Module } else { OptionState::BuiltIn };
            Some((name.to_owned(), state))
        });
        Self(options.collect())
    }

    /// `name`: without `CONFIG_`.
    pub(super) fn option(&self, name: &str) -> OptionState {
        self.0.get(name).copied().unwrap_or(OptionState::Off)
    }
}

/// Whether `modules.builtin` or `modules.dep` has the module: `kernel/net/bridge/bridge.ko.xz: kernel/net/llc.ko.xz`.
pub(super) fn has_module(list: &str, module: &str) -> bool {
    let is_it = |line: &str| {
        let path = line.split(':').next().unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or_default();
        let name = file.split_once(".ko").map_or(file, |(name, _)| name);
        !module.is_empty() && name.replace('-', "_") == module
    };
    list.lines().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_built_in_modules_or_off() {
        let config = KernelConfig::parse("# x\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=\"text\"\n");
        let states = ["A", "B", "C", "D"].map(|name| config.option(name));
        assert_eq!(states, [OptionState::BuiltIn, OptionState::Module, OptionState::Off, OptionState::BuiltIn]);
    }

    #[test]
    fn modules_are_found_by_file_name() {
        let list = "kernel/net/bridge/bridge.ko.xz: kernel/net/llc/llc.ko.xz\nkernel/net/netfilter/nf-tables.ko\n";
        for (module, found) in [("bridge", true), ("nf_tables", true), ("llc", false), ("", false), ("bridg", false)] {
            assert_eq!(has_module(list, module), found, "{module}");
        }
    }
}
