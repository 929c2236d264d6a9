//! Attributes of device files, from sysfs.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use crate::types::api::{DeviceAttribute, DeviceAttributes, MAX_ATTRIBUTE_BYTES};

/// Ancestors of a device that are read.
const MAX_DEVICE_ANCESTORS: usize = 16;
const MAX_ATTRIBUTE_FILE_BYTES: u64 = 256;

/// Attributes and the files in which a device or an ancestor may have them, by preference.
const ATTRIBUTE_FILES: [(&str, &[&str]); 7] = [
    ("firmware", &["firmware_rev", "firmware_version", "fwrev", "bcdDevice"]),
    ("model", &["product", "model", "name"]),
    ("serial", &["serial"]),
    ("vendor", &["manufacturer"]),
    ("vendorId", &["idVendor", "vendor"]),
    ("productId", &["idProduct", "device"]),
    ("compatible", &["of_node/compatible"]),
];

/// The attributes of a device below `sys`, from the device itself and then its ancestors. Empty without sysfs.
pub(super) fn read(sys: &Path, is_block: bool, device: u64) -> DeviceAttributes {
    let mut read = DeviceAttributes::new();
    let kind = if is_block { "block" } else { "char" };
    let entry = sys.join(format!("dev/{kind}/{}:{}", major(device), minor(device)));
    let (Ok(mut directory), Ok(top)) = (fs::canonicalize(entry), fs::canonicalize(sys.join("devices"))) else {
        return read;
    };
    let mut add = |name: &str, text: String| {
        if !text.is_empty() && !read.contains_key(name) {
            read.insert(name.to_owned(), DeviceAttribute::String(text));
        }
    };
    for level in 0..MAX_DEVICE_ANCESTORS {
        if directory == top || !directory.starts_with(&top) {
            break;
        }
        let subsystem = link_name(&directory.join("subsystem"));
        if level == 0 {
            add("kernelName", directory.file_name().map(|name| cleaned(&name.to_string_lossy())).unwrap_or_default());
            add("subsystem", subsystem.clone());
        }
        let driver = link_name(&directory.join("driver"));
        if !driver.is_empty() {
            add("bus", subsystem);
            add("driver", driver);
        }
        for (name, files) in ATTRIBUTE_FILES {
            for file in files {
                add(name, content(&directory, file));
            }
        }
        if !directory.pop() {
            break;
        }
    }
    read
}

fn link_name(link: &Path) -> String {
    let target = fs::read_link(link).unwrap_or_default();
    target.file_name().map(|name| cleaned(&name.to_string_lossy())).unwrap_or_default()
}

fn content(directory: &Path, file: &str) -> String {
    let path = directory.join(file);
    // Some of the names are directories or links of other devices.
    if !fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
        return String::new();
    }
    let mut bytes = Vec::new();
    let read = fs::File::open(&path).and_then(|file| file.take(MAX_ATTRIBUTE_FILE_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return String::new();
    }
    let text = cleaned(&String::from_utf8_lossy(&bytes));
    if file == "bcdDevice" { decimal(&text) } else { text }
}

/// The first word up to a NUL, without other control characters, cut at the limit of an attribute.
fn cleaned(text: &str) -> String {
    let text = text.split('\0').next().unwrap_or_default().trim();
    let mut cleaned = String::new();
    for letter in text.chars().filter(|letter| !letter.is_control()) {
        if cleaned.len() + letter.len_utf8() > MAX_ATTRIBUTE_BYTES {
            break;
        }
        cleaned.push(letter);
    }
    cleaned
}

/// USB's four binary-coded digits as a version: `0110` is 1.10.
fn decimal(text: &str) -> String {
    match (text.get(..2), text.get(2..)) {
        (Some(major), Some(minor)) if text.len() == 4 => {
            let major = major.trim_start_matches('0');
            format!("{}.{minor}", if major.is_empty() { "0" } else { major })
        }
        _ => text.to_owned(),
    }
}

const fn major(device: u64) -> u64 {
    (device >> 8) & 0xfff | (device >> 32) & 0xffff_f000
}

const fn minor(device: u64) -> u64 {
    device & 0xff | (device >> 12) & 0xffff_ff00
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-sysfs-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("dev/char")).unwrap();
            Self(root)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, target: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        fn read(&self, major: u32, minor: u32) -> Vec<(String, String)> {
            let device = nix::sys::stat::makedev(major.into(), minor.into());
            let read = read(&self.0, false, device);
            read.iter().map(|(name, attribute)| (name.clone(), attribute.text().into_owned())).collect()
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn attributes_come_from_the_device_and_its_ancestors() {
        let sys = Sys::new("usb");
        let usb = "devices/platform/soc/usb1/1-2";
        let video = format!("{usb}/1-2:1.0/video4linux/video0");
        sys.link("dev/char/81:300", &format!("../../{video}"));
        sys.link(&format!("{video}/subsystem"), "../../../../../../../class/video4linux");
        sys.file(&format!("{video}/name"), "HD Webcam C270\n");
        sys.link(&format!("{usb}/1-2:1.0/driver"), "../../../../../bus/usb/drivers/uvcvideo");
        sys.link(&format!("{usb}/1-2:1.0/subsystem"), "../../../../../bus/usb");
        sys.file(&format!("{usb}/product"), "Webcam\n");
        sys.file(&format!("{usb}/manufacturer"), "Logi\ttech\n");
        sys.file(&format!("{usb}/idVendor"), "046d\n");
        sys.file(&format!("{usb}/idProduct"), "0825\n");
        sys.file(&format!("{usb}/bcdDevice"), "0012\n");
        sys.file(&format!("{usb}/serial"), &"9".repeat(100));
        sys.link(&format!("{usb}/driver"), "../../../../bus/usb/drivers/usb");
        sys.file("devices/platform/soc/of_node/compatible", "brcm,bcm2711-usb\0brcm,usb\0");
        sys.file("devices/model", "not of a device");
        let read = sys.read(81, 300);
        let read: Vec<(&str, &str)> = read.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let serial = "9".repeat(MAX_ATTRIBUTE_BYTES);
        let expected = [
            ("bus", "usb"),
            ("compatible", "brcm,bcm2711-usb"),
            ("driver", "uvcvideo"),
            ("firmware", "0.12"),
            ("kernelName", "video0"),
            ("model", "HD Webcam C270"),
            ("productId", "0825"),
            ("serial", &serial),
            ("subsystem", "video4linux"),
            ("vendor", "Logitech"),
            ("vendorId", "046d"),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn unreadable_sysfs_gives_no_attributes() {
        let sys = Sys::new("none");
        fs::create_dir_all(sys.0.join("devices")).unwrap();
        assert!(sys.read(1, 3).is_empty());
        sys.link("dev/char/1:3", "../../dev");
        assert!(sys.read(1, 3).is_empty(), "outside of the devices");
        sys.link("dev/char/1:5", "../../devices/loop");
        sys.link("devices/loop", "loop");
        assert!(sys.read(1, 5).is_empty());
    }
}
