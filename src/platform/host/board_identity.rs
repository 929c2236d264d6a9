//! What tells one board from another: serial number, MAC addresses, model.

use std::fs;
use std::path::Path;

use super::file::read_head;
use super::procfs::Procfs;
use crate::types::sorted::SortOnce;

const MAX_IDENTITY_FILE_BYTES: usize = 256;
/// The end of the file has the serial number, after all processors.
const MAX_CPUINFO_BYTES: usize = 256 << 10;
/// Most network interfaces that are looked at.
const MAX_INTERFACES: usize = 256;

/// The serial number of the board below `root`, unless it is a placeholder of the firmware.
pub(crate) fn serial(root: &Path) -> Option<String> {
    let files = ["proc/device-tree/serial-number", "sys/class/dmi/id/product_serial", "sys/class/dmi/id/board_serial"];
    let serial = files.iter().filter_map(|file| text(&root.join(file))).find(|serial| !is_placeholder(serial));
    serial.or_else(|| cpuinfo_serial(root))
}

/// The model of the device tree.
pub(crate) fn model(root: &Path) -> Option<String> {
    text(&root.join("proc/device-tree/model"))
}

/// The address that the manufacturer has given `interface`; without one, the default route's interface, or else the
/// first physical one by name.
pub(crate) fn mac(root: &Path, interface: Option<&str>) -> Option<String> {
    let interfaces = root.join("sys/class/net");
    let of = |name: &str| {
        let folder = interfaces.join(name);
        let address = text(&folder.join("address"))?.to_ascii_lowercase();
        // 0: permanent (include/uapi/linux/netdevice.h); 1: random, 2: of another device, 3: set by a program.
        let is_permanent = text(&folder.join("addr_assign_type")).is_none_or(|kind| kind == "0");
        (is_permanent && is_universal(&address)).then_some(address)
    };
    if let Some(name) = interface {
        return of(name);
    }
    let is_physical = |name: &String| interfaces.join(name).join("device").exists();
    let of_route = Procfs::at(root.join("proc")).default_interface();
    if let Some(address) = of_route.filter(is_physical).and_then(|name| of(&name)) {
        return Some(address);
    }
    let entries = fs::read_dir(&interfaces).ok()?.take(MAX_INTERFACES).flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_once();
    names.iter().filter(|name| is_physical(name)).find_map(|name| of(name))
}

fn cpuinfo_serial(root: &Path) -> Option<String> {
    let text = read_head(&root.join("proc/cpuinfo"), MAX_CPUINFO_BYTES).ok()?;
    let text = String::from_utf8_lossy(&text);
    let of_line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "Serial").then(|| value.trim().to_owned())
    };
    text.lines().find_map(of_line).filter(|serial| !is_placeholder(serial))
}

/// The text of a small file, without the NUL that ends a property of a device tree; `None` if there is none.
fn text(path: &Path) -> Option<String> {
    let bytes = read_head(path, MAX_IDENTITY_FILE_BYTES).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    (!text.is_empty()).then(|| text.to_owned())
}

/// Texts that firmware has where nobody has entered a serial number.
fn is_placeholder(serial: &str) -> bool {
    let serial = serial.to_ascii_lowercase();
    let mut characters = serial.chars().filter(char::is_ascii_alphanumeric);
    let first = characters.next();
    // Zeros, "xxxx", "ffff", "........".
    if characters.all(|c| Some(c) == first) {
        return true;
    }
    let is_sequence = serial.len() > 3
        && ["0123456789", "1234567890", "01234567890123456789"].iter().any(|digits| digits.starts_with(&*serial));
    is_sequence
        || ["o.e.m", "by oem", "default", "serial", "not specified", "not applicable", "not available", "unknown"]
            .iter()
            .any(|words| serial.contains(words))
        || ["n/a", "na", "none", "null", "invalid", "empty", "oem", "standard", "sernum0", "no asset tag"]
            .contains(&&*serial)
}

/// An address of a manufacturer (IEEE 802): six bytes, neither a group's nor locally administered, not all zero.
fn is_universal(address: &str) -> bool {
    let bytes: Option<Vec<u8>> = address.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes.is_some_and(|bytes| {
        bytes.len() == 6 && bytes.first().is_some_and(|first| first & 3 == 0) && bytes.iter().any(|byte| *byte != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::TestFolder;

    fn machine(files: &[(&str, &str)]) -> TestFolder {
        let folder = TestFolder::new("board-identity");
        for (path, text) in files {
            let path = folder.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    const TREE: &str = "proc/device-tree/serial-number";
    const PRODUCT: &str = "sys/class/dmi/id/product_serial";
    const BOARD: &str = "sys/class/dmi/id/board_serial";

    #[test]
    fn serial_is_the_first_that_is_no_placeholder() {
        for (files, expected) in [
            (&[(TREE, "10000000abcdef01\0"), (PRODUCT, "X1\n")][..], Some("10000000abcdef01")),
            (&[(PRODUCT, "To Be Filled By O.E.M.\n"), (BOARD, "PF0ABC12\n")], Some("PF0ABC12")),
            (
                &[("proc/cpuinfo", "processor\t: 0\n\nHardware\t: BCM2835\nSerial\t\t: 00000000abcd0123\n")],
                Some("00000000abcd0123"),
            ),
            (&[("proc/cpuinfo", "Serial\t\t: 0000000000000000\n")], None),
            (&[(TREE, "\0"), (PRODUCT, " \n")], None),
            (&[], None),
        ] {
            let folder = machine(files);
            assert_eq!(serial(&folder.0).as_deref(), expected, "{files:?}");
        }
    }

    #[test]
    fn placeholders_of_firmware_are_no_serial_numbers() {
        for text in [
            "0",
            "00000000",
            "XXXXXXX",
            "....",
            "-",
            "None",
            "N/A",
            "Default string",
            "To be filled by O.E.M.",
            "System Serial Number",
            "Not Specified",
            "123456789",
            "0123456789",
            "Filled by OEM",
            "ffffffff",
            "Unknown",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in ["A1", "VMware-56 4d", "1234568", "PF0ABC12", "10000000abcdef01", "ec2a4b1c-0000"] {
            assert!(!is_placeholder(text), "{text}");
        }
    }

    #[test]
    fn only_addresses_of_manufacturers_are_identities() {
        for (address, expected) in [
            ("dc:a6:32:01:02:03", true),
            ("00:00:00:00:00:00", false),
            // Locally administered, a group, InfiniBand.
            ("02:42:ac:11:00:02", false),
            ("01:00:5e:00:00:01", false),
            ("80:00:02:08:fe:80:00:00", false),
            ("", false),
        ] {
            assert_eq!(is_universal(address), expected, "{address}");
        }
    }

    #[test]
    fn mac_is_that_of_the_default_route_or_the_first_physical_interface() {
        let eth = |name: &str, address: &str| {
            [
                (format!("sys/class/net/{name}/address"), format!("{address}\n")),
                (format!("sys/class/net/{name}/device/x"), String::new()),
            ]
        };
        let mut files = eth("eth1", "dc:a6:32:00:00:01").to_vec();
        files.extend(eth("eth0", "dc:a6:32:00:00:00"));
        files.extend(eth("usb0", "3e:00:00:00:00:09"));
        files.push(("sys/class/net/br0/address".to_owned(), "dc:a6:32:00:00:07\n".to_owned()));
        files.extend(eth("eth2", "dc:a6:32:00:00:02"));
        files.push(("sys/class/net/eth2/addr_assign_type".to_owned(), "1\n".to_owned()));
        let route = |name: &str| {
            format!(
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n{name}\t00000000\t\
                 0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
            )
        };
        let read = |routed: &str, interface: Option<&str>| {
            let route = route(routed);
            let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
            files.push(("proc/net/route", &route));
            mac(&machine(&files).0, interface)
        };
        let of = |last: &str| Some(format!("dc:a6:32:00:00:{last}"));
        assert_eq!(read("eth1", None), of("01"));
        // Virtual, locally administered, or with a random address.
        for routed in ["br0", "usb0", "eth2", "none"] {
            assert_eq!(read(routed, None), of("00"), "{routed}");
        }
        assert_eq!(read("eth1", Some("br0")), of("07"));
        for interface in ["usb0", "eth2", "eth9"] {
            assert_eq!(read("eth1", Some(interface)), None, "{interface}");
        }
    }
}
