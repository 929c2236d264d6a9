//! Machine ids, firmware ids and the OS, with cadvisor's sources. Read once.

use std::fs;
use std::path::Path;

use crate::types::architecture::ARCHITECTURE;

/// Fields that were not found are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) machine_id: String,
    /// From the board's firmware, if it has one.
    pub(crate) system_uuid: String,
    pub(crate) boot_id: String,
    pub(crate) kernel_version: String,
    pub(crate) os_image: String,
    /// In Go's spelling.
    pub(crate) architecture: &'static str,
}

const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
const SYSTEM_UUIDS: [&str; 4] =
    ["sys/class/dmi/id/product_uuid", "proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"];
const OS_RELEASES: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];

impl Machine {
    pub(crate) fn read(root: &Path) -> Self {
        let first = |paths: &[&str]| paths.iter().find_map(|path| read(&root.join(path))).unwrap_or_default();
        let os_release = first(&OS_RELEASES);
        Self {
            machine_id: first(&MACHINE_IDS),
            system_uuid: first(&SYSTEM_UUIDS),
            boot_id: first(&["proc/sys/kernel/random/boot_id"]),
            kernel_version: first(&["proc/sys/kernel/osrelease"]),
            os_image: pretty_name(&os_release).unwrap_or_else(|| "Unknown".to_owned()),
            architecture: ARCHITECTURE,
        }
    }
}

/// The trimmed text of a file; device tree properties end in a NUL.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// `PRETTY_NAME` from os-release(5), which has shell quoting.
fn pretty_name(os_release: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?.trim();
    let bare = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let mut name = String::new();
    let mut letters = bare.unwrap_or(value).chars();
    while let Some(letter) = letters.next() {
        name.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, files: &[(&str, &str)]) -> Machine {
        let root = std::env::temp_dir().join(format!("coracle-machine-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::read(&root);
        fs::remove_dir_all(&root).unwrap();
        machine
    }

    #[test]
    fn board_id_is_from_the_device_tree_and_server_id_from_firmware() {
        let board = [
            ("etc/machine-id", "0123\n"),
            ("proc/device-tree/vm,uuid", "tree-uuid\0"),
            ("proc/sys/kernel/random/boot_id", "boot\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-rpi\n"),
            ("usr/lib/os-release", "ID=x\nPRETTY_NAME=\"A \\\"small\\\" system (1)\"\n"),
        ];
        let expected = Machine {
            machine_id: "0123".to_owned(),
            system_uuid: "tree-uuid".to_owned(),
            boot_id: "boot".to_owned(),
            kernel_version: "6.1.0-rpi".to_owned(),
            os_image: "A \"small\" system (1)".to_owned(),
            architecture: ARCHITECTURE,
        };
        assert_eq!(machine("board", &board), expected);
        let server = [("sys/class/dmi/id/product_uuid", "firmware\n"), ("proc/device-tree/system-id", "no\0")];
        assert_eq!(machine("server", &server).system_uuid, "firmware");
    }

    #[test]
    fn machine_without_firmware_uuid_uses_dbus_machine_id() {
        let machine = machine("plain", &[("var/lib/dbus/machine-id", "dbus"), ("etc/os-release", "NAME=x\n")]);
        assert_eq!((machine.machine_id.as_str(), machine.system_uuid.as_str()), ("dbus", ""));
        assert_eq!(machine.os_image, "Unknown");
    }

    #[test]
    fn pretty_name_may_be_quoted_in_any_way() {
        for line in ["PRETTY_NAME=Alpine", "PRETTY_NAME='Alpine'", "PRETTY_NAME=\"Alpine\"", "  PRETTY_NAME=Al\\pine "]
        {
            assert_eq!(pretty_name(line).as_deref(), Some("Alpine"), "{line}");
        }
        assert_eq!(pretty_name("PRETTY_NAME="), None);
        // A backslash at the end and no closing quote.
        assert_eq!(pretty_name("PRETTY_NAME=\"\\").as_deref(), Some("\""));
    }
}
