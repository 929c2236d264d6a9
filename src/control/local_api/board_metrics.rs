//! The metrics of the board: flash wear, voltages, temperatures, file systems, power. Only of what the board has. Pure.

use crate::kubelet::node::BoardHealth;
use crate::types::board::{BoardReadings, FileSystemState, PowerSupply};
use crate::types::metrics::{Exposition, Kind, Labels, Number};

pub(super) fn of_board(page: &mut Exposition, board: &BoardHealth) {
    let readings = board.readings();
    let held = board.conditions().iter().map(|condition| (condition.problem.as_str(), condition.holds.into()));
    samples(
        page,
        ("coracle_board_problem", Kind::Gauge, "Whether the board has this problem, as the conditions of the node."),
        "problem",
        held.map(|(problem, holds)| (problem, Number::Whole(holds))),
    );
    of_sensors(page, readings);
    let path = |state: &FileSystemState| state.path.display().to_string();
    let errors = readings.file_systems.iter().filter_map(|state| Some((path(state), Number::Whole(state.errors?))));
    let help = "Errors that the file system has recorded since its last check.";
    samples(page, ("coracle_file_system_errors", Kind::Gauge, help), "path", errors);
    let failed = readings.file_systems.iter().filter_map(|state| Some((path(state), Number::Whole(state.io_errors?))));
    let help = "Failed requests of the disk of this file system since the boot.";
    samples(page, ("coracle_disk_io_errors_total", Kind::Counter, help), "path", failed);
}

fn of_sensors(page: &mut Exposition, readings: &BoardReadings) {
    let used = readings.flash.iter().filter(|flash| flash.tenths_used > 0);
    let used = used.map(|flash| (&flash.device, Number::Whole(u64::from(flash.tenths_used) * 10)));
    let help = "Life of the flash memory that is used, rounded up to tens; 110 is more than all.";
    samples(page, ("coracle_flash_life_used_percent", Kind::Gauge, help), "device", used);
    let reserve = readings.flash.iter().filter(|flash| flash.reserve > 0);
    let reserve = reserve.map(|flash| (&flash.device, Number::Whole(flash.reserve.into())));
    let help = "Reserved blocks of the flash memory: 1 normal, 2 most are used, 3 nearly all are used.";
    samples(page, ("coracle_flash_reserve_state", Kind::Gauge, help), "device", reserve);
    let zones = readings.zones.iter().map(|zone| (&zone.name, Number::Signed(zone.millidegrees / 1000)));
    let help = "Temperature of the thermal zone.";
    samples(page, ("coracle_temperature_celsius", Kind::Gauge, help), "zone", zones);
    let limits = readings.zones.iter();
    let limits = limits.filter_map(|zone| Some((&zone.name, Number::Signed(zone.limit_millidegrees? / 1000))));
    let help = "Temperature at which the board slows down or switches off.";
    samples(page, ("coracle_temperature_limit_celsius", Kind::Gauge, help), "zone", limits);
    let online = |supply: &PowerSupply| Some(Number::Whole(supply.is_online?.into()));
    let online = readings.supplies.iter().filter_map(|supply| Some((&supply.name, online(supply)?)));
    let help = "Whether power comes from this supply.";
    samples(page, ("coracle_power_supply_online", Kind::Gauge, help), "supply", online);
    let batteries = readings.supplies.iter().filter(|supply| supply.is_battery);
    let charge = batteries.filter_map(|supply| Some((&supply.name, Number::Whole(supply.percent?))));
    samples(page, ("coracle_battery_charge_percent", Kind::Gauge, "Charge of the battery."), "supply", charge);
}

/// A family, unless it has no samples.
fn samples<N: AsRef<str>>(
    page: &mut Exposition,
    (name, kind, help): (&'static str, Kind, &'static str),
    label: &'static str,
    samples: impl Iterator<Item = (N, Number)>,
) {
    let mut samples = samples.peekable();
    if samples.peek().is_some() {
        page.family(name, kind, help);
    }
    for (of, number) in samples {
        page.sample(&Labels::of(&[(label, of.as_ref())]), number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::kubelet::node::BoardMoment;
    use crate::types::api::Time;
    use crate::types::board::{FlashWear, ThermalZone};

    fn shown(readings: BoardReadings) -> String {
        let (now, instant) = (Time::from_unix_nanos(1_900_000_000_000_000_000), Instant::now());
        let mut board = BoardHealth::default();
        board.note(readings, &BoardMoment { now, instant, built: None, is_alarmed: false });
        let mut page = Exposition::default();
        of_board(&mut page, &board);
        let text = String::from_utf8(page.into_bytes()).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn board_without_sensors_has_no_metrics() {
        assert_eq!(shown(BoardReadings::default()), "");
    }

    #[test]
    fn each_reading_is_a_sample() {
        let state = |path: &str, errors, io_errors| FileSystemState {
            path: path.into(),
            device: "sda1".to_owned(),
            is_read_only: false,
            errors,
            io_errors,
        };
        let supply = |name: &str, is_battery, is_online, percent| PowerSupply {
            name: name.to_owned(),
            is_battery,
            is_online,
            percent,
            is_discharging: true,
        };
        let flash = |device: &str, tenths_used, reserve| FlashWear { device: device.to_owned(), tenths_used, reserve };
        let zone = |name: &str, millidegrees, limit_millidegrees| ThermalZone {
            name: name.to_owned(),
            millidegrees,
            limit_millidegrees,
        };
        let readings = BoardReadings {
            flash: vec![flash("mmcblk0", 11, 0), flash("mmcblk1", 0, 1)],
            zones: vec![zone("cpu", 61_900, Some(85_000)), zone("out", -4_000, None)],
            file_systems: vec![state("/", Some(0), None), state("/data", None, Some(3))],
            supplies: vec![supply("AC", false, Some(true), None), supply("BAT0", true, None, Some(80))],
            ..BoardReadings::default()
        };
        let expected = "coracle_board_problem{problem=\"BatteryLow\"} 0\n\
            coracle_board_problem{problem=\"FlashWorn\"} 1\n\
            coracle_board_problem{problem=\"Overheated\"} 0\n\
            coracle_flash_life_used_percent{device=\"mmcblk0\"} 110\n\
            coracle_flash_reserve_state{device=\"mmcblk1\"} 1\n\
            coracle_temperature_celsius{zone=\"cpu\"} 61\n\
            coracle_temperature_celsius{zone=\"out\"} -4\n\
            coracle_temperature_limit_celsius{zone=\"cpu\"} 85\n\
            coracle_power_supply_online{supply=\"AC\"} 1\n\
            coracle_battery_charge_percent{supply=\"BAT0\"} 80\n\
            coracle_file_system_errors{path=\"/\"} 0\n\
            coracle_disk_io_errors_total{path=\"/data\"} 3\n";
        assert_eq!(shown(readings), expected);
    }
}
