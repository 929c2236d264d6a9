//! What the kernel tells of a board: flash wear, supply voltage, temperatures, errors of its file systems, batteries.
//!
//! Every file may be missing, and is small: a machine without them costs a few failed opens.

use std::fs;
use std::path::{Path, PathBuf};

use super::file::read_head;
use super::procfs::{Mount, Procfs};
use crate::types::board::{BoardReadings, FileSystemState, FlashWear, PowerSupply, ThermalZone, VoltageAlarm};
use crate::types::sorted::SortOnce;

/// Most entries of a directory that are looked at.
const MAX_BOARD_ENTRIES: usize = 128;
const MAX_BOARD_FILE_BYTES: usize = 128;
const MAX_TRIP_POINTS: u32 = 12;
/// Firmware of some boards has trip points that are always exceeded.
const MIN_TRIP_MILLIDEGREES: i64 = 50_000;

impl BoardReadings {
    /// Reads the files below `root`. `data`: the data directory. Some sensors answer slowly: blocking.
    pub(crate) fn read(root: &Path, data: &Path) -> Self {
        let sys = root.join("sys");
        Self {
            flash: entries(&sys.join("block")).iter().filter_map(|device| flash(device)).collect(),
            voltages: voltage_alarm_files(root).iter().filter_map(|file| voltage(file)).collect(),
            zones: entries(&sys.join("class/thermal")).iter().filter_map(|zone| thermal_zone(zone)).collect(),
            file_systems: file_systems(root, data),
            supplies: entries(&sys.join("class/power_supply")).iter().filter_map(|folder| supply(folder)).collect(),
        }
    }
}

/// The files of critically low voltages (Documentation/hwmon/sysfs-interface.rst).
pub(crate) fn voltage_alarm_files(root: &Path) -> Vec<PathBuf> {
    let is_alarm = |file: &PathBuf| {
        let name = name_of(file);
        name.starts_with("in") && name.ends_with("_lcrit_alarm")
    };
    let sensors = entries(&root.join("sys/class/hwmon"));
    sensors.iter().flat_map(|sensor| entries(sensor)).filter(is_alarm).collect()
}

fn voltage(file: &Path) -> Option<VoltageAlarm> {
    let sensor = file.parent()?;
    let name = text(&sensor.join("name")).unwrap_or_else(|| name_of(sensor));
    Some(VoltageAlarm { sensor: name, is_low: text(file)? != "0" })
}

fn flash(device: &Path) -> Option<FlashWear> {
    let name = name_of(device);
    // Their boot and RPMB areas are devices of their own, with the same files.
    if !name.starts_with("mmcblk") || name.contains("boot") || name.contains("rpmb") {
        return None;
    }
    let used = text(&device.join("device/life_time"))?;
    let tenths_used = used.split_whitespace().filter_map(hexadecimal).max()?;
    let reserve = text(&device.join("device/pre_eol_info")).as_deref().and_then(hexadecimal).unwrap_or(0);
    // Zero is "not defined": devices before eMMC 5.0, and SD cards.
    (tenths_used > 0 || reserve > 0).then_some(FlashWear { device: name, tenths_used, reserve })
}

fn thermal_zone(zone: &Path) -> Option<ThermalZone> {
    if !name_of(zone).starts_with("thermal_zone") || text(&zone.join("mode")).as_deref() == Some("disabled") {
        return None;
    }
    let millidegrees = number(&zone.join("temp"))?;
    let trip = |index: u32| {
        let kind = text(&zone.join(format!("trip_point_{index}_type")))?;
        let slows = matches!(&*kind, "passive" | "hot" | "critical");
        number(&zone.join(format!("trip_point_{index}_temp"))).filter(|_| slows)
    };
    let trips = (0..MAX_TRIP_POINTS).filter_map(trip).filter(|trip| *trip >= MIN_TRIP_MILLIDEGREES);
    let name = text(&zone.join("type")).unwrap_or_else(|| name_of(zone));
    Some(ThermalZone { name, millidegrees, limit_millidegrees: trips.min() })
}

fn file_systems(root: &Path, data: &Path) -> Vec<FileSystemState> {
    let Ok(mounts) = Procfs::at(root.join("proc")).mounts() else { return Vec::new() };
    let mut file_systems: Vec<FileSystemState> = Vec::new();
    for path in [Path::new("/"), data] {
        let Some(mount) = mount_of(path, &mounts) else { continue };
        if !file_systems.iter().any(|listed| listed.path == mount.point) {
            file_systems.push(file_system(root, mount));
        }
    }
    file_systems
}

/// The mount that `path` lies on: of several on one point, the last one.
fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

fn file_system(root: &Path, mount: &Mount) -> FileSystemState {
    let sys = root.join("sys");
    let (major, minor) = mount.device;
    // Such as ../../devices/platform/…/block/mmcblk0/mmcblk0p2.
    let link = fs::read_link(sys.join(format!("dev/block/{major}:{minor}"))).unwrap_or_default();
    let device = name_of(&link);
    let parent = link.parent().map(name_of).unwrap_or_default();
    let disk = if parent == "block" { &device } else { &parent };
    let is_known = !device.is_empty();
    let io_errors = text(&sys.join(format!("block/{disk}/device/ioerr_cnt")));
    FileSystemState {
        path: mount.point.clone(),
        is_read_only: mount.read_only || mount.file_system_read_only,
        errors: text(&sys.join(format!("fs/ext4/{device}/errors_count"))).and_then(|text| text.parse().ok()),
        io_errors: io_errors.filter(|_| is_known).and_then(|text| hexadecimal(&text)),
        device,
    }
}

fn supply(supply: &Path) -> Option<PowerSupply> {
    let file = |name: &str| text(&supply.join(name));
    // Batteries of mice and the like.
    if file("scope").as_deref() == Some("Device") {
        return None;
    }
    let is_battery = file("type")? == "Battery";
    Some(PowerSupply {
        name: name_of(supply),
        is_battery,
        is_online: file("online").filter(|_| !is_battery).map(|online| online != "0"),
        percent: file("capacity").and_then(|text| text.parse().ok()),
        is_discharging: file("status").as_deref() == Some("Discharging"),
    })
}

/// In the order of their names.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(listed) = fs::read_dir(directory) else { return Vec::new() };
    let mut entries: Vec<PathBuf> =
        listed.take(MAX_BOARD_ENTRIES).filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort_once();
    entries
}

fn text(path: &Path) -> Option<String> {
    let text = String::from_utf8(read_head(path, MAX_BOARD_FILE_BYTES).ok()?).ok()?;
    Some(text.trim().to_owned())
}

fn number(path: &Path) -> Option<i64> {
    text(path)?.parse().ok()
}

/// Such as `0x0b`.
fn hexadecimal<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let number = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    T::try_from(number).ok()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree of files below a new directory.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-board-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{content}\n")).unwrap();
            }
            Self(root)
        }

        fn link(&self, path: &str, target: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        fn read(&self) -> BoardReadings {
            BoardReadings::read(&self.0, Path::new("/var/lib/kubelet"))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn machine_without_files_has_no_readings() {
        let readings = Tree::new("none", &[("etc/passwd", "")]).read();
        assert_eq!(readings, BoardReadings::default());
        assert!(!readings.has_sensors());
    }

    #[test]
    fn wear_of_flash_is_that_of_its_worse_area() {
        let tree = Tree::new(
            "flash",
            &[
                ("sys/block/mmcblk0/device/life_time", "0x02 0x0b"),
                ("sys/block/mmcblk0/device/pre_eol_info", "0x02"),
                ("sys/block/mmcblk0boot0/device/life_time", "0x02 0x0b"),
                ("sys/block/mmcblk1/device/life_time", "0x00 0x00"),
                ("sys/block/mmcblk1/device/pre_eol_info", "0x00"),
                ("sys/block/mmcblk2/device/name", "SD"),
                ("sys/block/mmcblk3/device/life_time", "worn"),
            ],
        );
        let worn = FlashWear { device: "mmcblk0".to_owned(), tenths_used: 11, reserve: 2 };
        assert_eq!(tree.read(), BoardReadings { flash: vec![worn], ..BoardReadings::default() });
        assert!(tree.read().has_sensors());
    }

    #[test]
    fn sensors_have_their_names_and_lowest_trip_points() {
        let tree = Tree::new(
            "sensors",
            &[
                ("sys/class/hwmon/hwmon1/name", "rpi_volt"),
                ("sys/class/hwmon/hwmon1/in0_lcrit_alarm", "1"),
                ("sys/class/hwmon/hwmon0/in0_min_alarm", "1"),
                ("sys/class/hwmon/hwmon2/in3_lcrit_alarm", "0"),
                ("sys/class/thermal/thermal_zone0/type", "cpu-thermal"),
                ("sys/class/thermal/thermal_zone0/temp", "61346"),
                ("sys/class/thermal/thermal_zone0/trip_point_0_type", "active"),
                ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "55000"),
                ("sys/class/thermal/thermal_zone0/trip_point_1_type", "critical"),
                ("sys/class/thermal/thermal_zone0/trip_point_1_temp", "110000"),
                ("sys/class/thermal/thermal_zone0/trip_point_2_type", "passive"),
                ("sys/class/thermal/thermal_zone0/trip_point_2_temp", "85000"),
                ("sys/class/thermal/thermal_zone1/temp", "-4000"),
                ("sys/class/thermal/thermal_zone1/trip_point_0_type", "critical"),
                ("sys/class/thermal/thermal_zone1/trip_point_0_temp", "20800"),
                ("sys/class/thermal/thermal_zone2/temp", "40000"),
                ("sys/class/thermal/thermal_zone2/mode", "disabled"),
                ("sys/class/thermal/cooling_device0/type", "fan"),
                ("sys/class/rtc/rtc0/name", "rtc"),
            ],
        );
        let alarm = |sensor: &str, is_low| VoltageAlarm { sensor: sensor.to_owned(), is_low };
        let zone = |name: &str, millidegrees, limit_millidegrees| ThermalZone {
            name: name.to_owned(),
            millidegrees,
            limit_millidegrees,
        };
        let expected = BoardReadings {
            voltages: vec![alarm("rpi_volt", true), alarm("hwmon2", false)],
            zones: vec![zone("cpu-thermal", 61_346, Some(85_000)), zone("thermal_zone1", -4000, None)],
            ..BoardReadings::default()
        };
        assert_eq!(tree.read(), expected);
    }

    #[test]
    fn file_systems_of_root_and_data_have_their_errors() {
        let table = "22 1 179:2 / / rw - ext4 /dev/root rw,errors=remount-ro\n\
                     30 22 8:1 / /var/lib rw,noatime - ext4 /dev/sda1 ro,errors=remount-ro\n\
                     31 22 0:40 / /var/lib/kubelet/pods ro - tmpfs tmpfs ro\n";
        let tree = Tree::new(
            "disks",
            &[
                ("proc/thread-self/mountinfo", table),
                ("sys/fs/ext4/mmcblk0p2/errors_count", "0"),
                ("sys/fs/ext4/sda1/errors_count", "3"),
                ("sys/block/sda/device/ioerr_cnt", "0x1f"),
            ],
        );
        tree.link("sys/dev/block/179:2", "../../devices/platform/soc/mmc0/block/mmcblk0/mmcblk0p2");
        tree.link("sys/dev/block/8:1", "../../devices/pci0000:00/host0/block/sda/sda1");
        let state = |path: &str, device: &str, is_read_only, errors, io_errors| FileSystemState {
            path: path.into(),
            device: device.to_owned(),
            is_read_only,
            errors,
            io_errors,
        };
        let expected =
            [state("/", "mmcblk0p2", false, Some(0), None), state("/var/lib", "sda1", true, Some(3), Some(31))];
        assert_eq!(tree.read().file_systems, expected);
        assert!(!tree.read().has_sensors());
    }

    #[test]
    fn supplies_are_batteries_and_others() {
        let tree = Tree::new(
            "supplies",
            &[
                ("sys/class/power_supply/AC/type", "Mains"),
                ("sys/class/power_supply/AC/online", "0"),
                ("sys/class/power_supply/BAT0/type", "Battery"),
                ("sys/class/power_supply/BAT0/capacity", "14"),
                ("sys/class/power_supply/BAT0/status", "Discharging"),
                ("sys/class/power_supply/mouse/type", "Battery"),
                ("sys/class/power_supply/mouse/scope", "Device"),
            ],
        );
        let mains = PowerSupply {
            name: "AC".to_owned(),
            is_battery: false,
            is_online: Some(false),
            percent: None,
            is_discharging: false,
        };
        let battery = PowerSupply {
            name: "BAT0".to_owned(),
            is_battery: true,
            is_online: None,
            percent: Some(14),
            is_discharging: true,
        };
        assert_eq!(tree.read().supplies, [mains, battery]);
    }
}
