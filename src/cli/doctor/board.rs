//! Checks of the board: flash wear, voltage, temperatures, errors of its disks, batteries. Pure.

use super::finding::Finding;
use crate::kubelet::node::{BoardHealth, BoardMoment};
use crate::types::board::BoardReadings;

/// The problems; without any, one line of what the board tells. Nothing for a machine that tells nothing.
pub(super) fn check(readings: BoardReadings, board_times: &BoardMoment) -> Vec<Finding> {
    let summary = describe(&readings);
    let mut health = BoardHealth::default();
    health.note(readings, board_times);
    let held = health.conditions().iter().filter(|condition| condition.holds);
    let mut findings: Vec<Finding> = held
        .map(|condition| {
            let (cause, advice) = condition.message.split_once("; ").unwrap_or((&condition.message, ""));
            Finding::warning("board", format!("{}: {cause}", condition.problem.as_str()), advice)
        })
        .collect();
    if findings.is_empty() && !summary.is_empty() {
        findings.push(Finding::ok("board", summary));
    }
    findings
}

/// Such as `mmcblk0 up to 20 % used, cpu-thermal 61 of 85 °C, rpi_volt ok, AC online, BAT0 80 %`.
fn describe(readings: &BoardReadings) -> String {
    let worn = readings.flash.iter().filter(|flash| flash.tenths_used > 0);
    let worn = worn.map(|flash| format!("{} up to {} % used", flash.device, u32::from(flash.tenths_used) * 10));
    let zones = readings.zones.iter().map(|zone| {
        let degrees = zone.millidegrees / 1000;
        match zone.limit_millidegrees {
            Some(limit) => format!("{} {degrees} of {} °C", zone.name, limit / 1000),
            None => format!("{} {degrees} °C", zone.name),
        }
    });
    let voltages = readings.voltages.iter().filter(|alarm| !alarm.is_low).map(|alarm| format!("{} ok", alarm.sensor));
    let supplies = readings.supplies.iter().filter_map(|supply| match (supply.is_online, supply.percent) {
        (Some(is_online), _) => Some(format!("{} {}", supply.name, if is_online { "online" } else { "offline" })),
        (None, Some(percent)) => Some(format!("{} {percent} %", supply.name)),
        (None, None) => None,
    });
    worn.chain(zones).chain(voltages).chain(supplies).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::types::api::Time;
    use crate::types::board::{FlashWear, PowerSupply, ThermalZone, VoltageAlarm};

    fn checked(readings: BoardReadings) -> Vec<Finding> {
        let now = Time::from_unix_nanos(1_900_000_000_000_000_000);
        check(readings, &BoardMoment { now, instant: Instant::now(), built: None, is_alarmed: false })
    }

    fn board(tenths_used: u8, is_low: bool) -> BoardReadings {
        let supply = |name: &str, is_battery: bool| PowerSupply {
            name: name.to_owned(),
            is_battery,
            is_online: (!is_battery).then_some(true),
            percent: is_battery.then_some(80),
            is_discharging: false,
        };
        let zone = |name: &str, limit_millidegrees| ThermalZone {
            name: name.to_owned(),
            millidegrees: 61_900,
            limit_millidegrees,
        };
        BoardReadings {
            flash: vec![FlashWear { device: "mmcblk0".to_owned(), tenths_used, reserve: 1 }],
            voltages: vec![VoltageAlarm { sensor: "rpi_volt".to_owned(), is_low }],
            zones: vec![zone("cpu-thermal", Some(85_000)), zone("other", None)],
            supplies: vec![supply("AC", false), supply("BAT0", true)],
            ..BoardReadings::default()
        }
    }

    #[test]
    fn healthy_board_has_one_line_and_a_plain_machine_none() {
        let told = "mmcblk0 up to 20 % used, cpu-thermal 61 of 85 °C, other 61 °C, rpi_volt ok, AC online, BAT0 80 %";
        assert_eq!(checked(board(2, false)), [Finding::ok("board", told)]);
        assert_eq!(checked(BoardReadings::default()), []);
    }

    #[test]
    fn each_problem_is_a_warning_with_its_advice() {
        let worn = Finding::warning(
            "board",
            "FlashWorn: mmcblk0 is worn, its life is over",
            "copy its data and replace it before it becomes read-only",
        );
        let low = Finding::warning(
            "board",
            "Undervoltage: rpi_volt has reported a low supply voltage",
            "use a stronger power supply and a short cable",
        );
        assert_eq!(checked(board(11, true)), [worn, low]);
    }
}
