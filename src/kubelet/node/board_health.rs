//! What is wrong with the board, as conditions of the node. Pure: the moments are arguments.
//!
//! A condition is shown where something can be read for it. Those of every machine (file systems, the clock) are shown
//! once they have held.

use std::time::{Duration, Instant};

use crate::state::pods::NodeEvent;
use crate::types::api::{EventKind, Reason, Time};
use crate::types::board::{BoardReadings, FileSystemState, ThermalZone};
use crate::types::sorted::SortedMap;
use crate::types::time::EARLIEST_CLOCK_SECONDS;

/// A condition type. Names as node-problem-detector's where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BoardProblem {
    BatteryLow,
    ClockUnset,
    FlashWorn,
    Overheated,
    ReadonlyFilesystem,
    StorageErrors,
    Undervoltage,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoardCondition {
    pub(crate) problem: BoardProblem,
    pub(crate) holds: bool,
    /// The cause, and after a semicolon what to do.
    pub(crate) message: String,
    pub(crate) since: Time,
}

/// What else the decision needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoardMoment {
    pub(crate) now: Time,
    pub(crate) instant: Instant,
    /// When this program was built, in Unix seconds.
    pub(crate) built: Option<i64>,
    /// The kernel has reported a low voltage since the last reading.
    pub(crate) is_alarmed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct BoardHealth {
    readings: BoardReadings,
    /// In the order of [`BoardProblem`].
    conditions: Vec<BoardCondition>,
    /// Until when a condition holds that is true for moments only.
    until: SortedMap<BoardProblem, Instant>,
    /// Of the first readings: what grows or changes is compared with them.
    first: Option<Vec<FileSystemState>>,
}

/// A low voltage and a high temperature come and go: they count for this long.
const MOMENTARY_HOLD: Duration = Duration::from_secs(600);
/// The life of flash memory that is used, in tenths rounded up.
const WORN_TENTHS: u8 = 10;
/// Most of the reserved blocks are used.
const WORN_RESERVE: u8 = 2;
const LOW_BATTERY_PERCENT: u64 = 15;

impl BoardProblem {
    pub(crate) const ALL: [Self; 7] = [
        Self::BatteryLow,
        Self::ClockUnset,
        Self::FlashWorn,
        Self::Overheated,
        Self::ReadonlyFilesystem,
        Self::StorageErrors,
        Self::Undervoltage,
    ];

    /// The condition type, and the reason while it holds.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::BatteryLow => "BatteryLow",
            Self::ClockUnset => "ClockUnset",
            Self::FlashWorn => "FlashWorn",
            Self::Overheated => "Overheated",
            Self::ReadonlyFilesystem => "ReadonlyFilesystem",
            Self::StorageErrors => "StorageErrors",
            Self::Undervoltage => "Undervoltage",
        }
    }

    pub(crate) fn reason(self, holds: bool) -> Reason {
        match (self, holds) {
            (Self::BatteryLow, true) => Reason::BATTERY_LOW,
            (Self::BatteryLow, false) => Reason::NO_BATTERY_LOW,
            (Self::ClockUnset, true) => Reason::CLOCK_UNSET,
            (Self::ClockUnset, false) => Reason::NO_CLOCK_UNSET,
            (Self::FlashWorn, true) => Reason::FLASH_WORN,
            (Self::FlashWorn, false) => Reason::NO_FLASH_WORN,
            (Self::Overheated, true) => Reason::OVERHEATED,
            (Self::Overheated, false) => Reason::NO_OVERHEATED,
            (Self::ReadonlyFilesystem, true) => Reason::READONLY_FILESYSTEM,
            (Self::ReadonlyFilesystem, false) => Reason::NO_READONLY_FILESYSTEM,
            (Self::StorageErrors, true) => Reason::STORAGE_ERRORS,
            (Self::StorageErrors, false) => Reason::NO_STORAGE_ERRORS,
            (Self::Undervoltage, true) => Reason::UNDERVOLTAGE,
            (Self::Undervoltage, false) => Reason::NO_UNDERVOLTAGE,
        }
    }

    /// The message while the condition does not hold.
    pub(super) const fn fine(self) -> &'static str {
        match self {
            Self::BatteryLow => "the battery is charged",
            Self::ClockUnset => "the clock is set",
            Self::FlashWorn => "the flash memory has life left",
            Self::Overheated => "no temperature is at its limit",
            Self::ReadonlyFilesystem => "the file systems are writable",
            Self::StorageErrors => "no errors of disks and file systems",
            Self::Undervoltage => "the supply voltage is high enough",
        }
    }

    const fn is_momentary(self) -> bool {
        matches!(self, Self::Overheated | Self::Undervoltage)
    }
}

impl BoardHealth {
    pub(crate) fn conditions(&self) -> &[BoardCondition] {
        &self.conditions
    }

    /// `None` before the first readings.
    pub(crate) fn known_conditions(&self) -> Option<&[BoardCondition]> {
        self.first.as_ref().map(|_| &*self.conditions)
    }

    pub(crate) fn readings(&self) -> &BoardReadings {
        &self.readings
    }

    /// Takes new readings. Returns the events of what changed.
    pub(crate) fn note(&mut self, readings: BoardReadings, board_times: &BoardMoment) -> Vec<NodeEvent> {
        let first = self.first.get_or_insert_with(|| readings.file_systems.clone());
        let faults = BoardProblem::ALL.map(|problem| (problem, fault(problem, &readings, first, board_times)));
        let mut events = Vec::new();
        let mut conditions = Vec::new();
        for (problem, fault) in faults {
            let before = self.conditions.iter().find(|condition| condition.problem == problem);
            if fault.is_some() && problem.is_momentary() {
                self.until.insert(problem, board_times.instant + MOMENTARY_HOLD);
            }
            let fault = fault.or_else(|| {
                let is_held = self.until.get(&problem).is_some_and(|until| *until > board_times.instant);
                before.filter(|condition| condition.holds && is_held).map(|condition| condition.message.clone())
            });
            if fault.is_none() && before.is_none() && !is_watched(problem, &readings) {
                continue;
            }
            let holds = fault.is_some();
            let message = fault.unwrap_or_else(|| problem.fine().to_owned());
            let same = before.filter(|condition| condition.holds == holds);
            if same.is_none() && (holds || before.is_some()) {
                let kind = if holds { EventKind::Warning } else { EventKind::Normal };
                events.push(NodeEvent::new(kind, problem.reason(holds), message.clone()));
            }
            let since = same.map_or(board_times.now, |condition| condition.since);
            conditions.push(BoardCondition { problem, holds, message, since });
        }
        self.conditions = conditions;
        self.readings = readings;
        events
    }
}

/// Whether the condition is shown before it has held.
fn is_watched(problem: BoardProblem, readings: &BoardReadings) -> bool {
    match problem {
        BoardProblem::BatteryLow => readings.supplies.iter().any(|supply| supply.is_battery),
        BoardProblem::FlashWorn => !readings.flash.is_empty(),
        BoardProblem::Overheated => readings.zones.iter().any(|zone| zone.limit_millidegrees.is_some()),
        BoardProblem::Undervoltage => !readings.voltages.is_empty(),
        BoardProblem::ClockUnset | BoardProblem::ReadonlyFilesystem | BoardProblem::StorageErrors => false,
    }
}

/// The cause and what to do, without figures that change all the time: each change of the message is a patch of the
/// Node object. `None`: all is well.
fn fault(
    problem: BoardProblem,
    readings: &BoardReadings,
    first: &[FileSystemState],
    board_times: &BoardMoment,
) -> Option<String> {
    match problem {
        BoardProblem::BatteryLow => battery(readings),
        BoardProblem::ClockUnset => clock(board_times),
        BoardProblem::FlashWorn => flash(readings),
        BoardProblem::Overheated => heat(&readings.zones),
        BoardProblem::ReadonlyFilesystem => read_only(&readings.file_systems, first),
        BoardProblem::StorageErrors => errors(&readings.file_systems, first),
        BoardProblem::Undervoltage => voltage(readings, board_times),
    }
}

fn battery(readings: &BoardReadings) -> Option<String> {
    let is_low = |percent: u64| percent <= LOW_BATTERY_PERCENT;
    let mut low = readings.supplies.iter().filter(|supply| supply.is_battery && supply.is_discharging);
    let low = low.find(|supply| supply.percent.is_some_and(is_low))?;
    let name = &low.name;
    Some(format!("{name} is discharging and has {LOW_BATTERY_PERCENT} % or less; connect the board to the mains"))
}

/// Whatever hardware clock there is: its battery may be empty, or missing.
fn clock(board_times: &BoardMoment) -> Option<String> {
    let is_past = board_times.now.unix_seconds() < board_times.built.unwrap_or(EARLIEST_CLOCK_SECONDS);
    is_past.then(|| {
        "the clock is wrong: it is before this program was built; run a time service, until then certificates are \
         invalid"
            .to_owned()
    })
}

fn flash(readings: &BoardReadings) -> Option<String> {
    let worn = |tenths, reserve| tenths >= WORN_TENTHS || reserve >= WORN_RESERVE;
    let worn = readings.flash.iter().find(|flash| worn(flash.tenths_used, flash.reserve))?;
    let life = match worn.tenths_used {
        0 => String::new(),
        tenths @ 1..=10 => format!(", up to {} % of its life is used", u32::from(tenths) * 10),
        _ => ", its life is over".to_owned(),
    };
    let reserve = match worn.reserve {
        2 => ", most of its reserved blocks are used",
        3.. => ", nearly all of its reserved blocks are used",
        0 | 1 => "",
    };
    Some(format!("{} is worn{life}{reserve}; copy its data and replace it before it becomes read-only", worn.device))
}

fn heat(zones: &[ThermalZone]) -> Option<String> {
    let limit = |zone: &ThermalZone| zone.limit_millidegrees.filter(|limit| zone.millidegrees >= *limit);
    let (zone, limit) = zones.iter().find_map(|zone| Some((zone, limit(zone)?)))?;
    let (name, limit) = (&zone.name, limit / 1000);
    Some(format!(
        "{name} has reached {limit} °C, where the board slows down or switches off; cool it or lower its load"
    ))
}

/// The data directory has to be writable. The root may be read-only from the start.
fn read_only(file_systems: &[FileSystemState], first: &[FileSystemState]) -> Option<String> {
    let was_writable = |now: &FileSystemState| first.iter().any(|then| then.path == now.path && !then.is_read_only);
    let last = file_systems.len().saturating_sub(1);
    let mut read_only = file_systems.iter().enumerate().filter(|(_, state)| state.is_read_only);
    let (_, state) = read_only.find(|(index, state)| *index == last || was_writable(state))?;
    let (path, device) = (state.path.display(), named(state));
    Some(format!("{path}{device} is read-only; see dmesg for the cause, check it with fsck, and restart the board"))
}

fn errors(file_systems: &[FileSystemState], first: &[FileSystemState]) -> Option<String> {
    if let Some(state) = file_systems.iter().find(|state| state.errors.is_some_and(|errors| errors > 0)) {
        let (path, device) = (state.path.display(), named(state));
        return Some(format!(
            "{path}{device} has recorded errors; copy its data, and check it with fsck at the next boot"
        ));
    }
    let grew = |now: &&FileSystemState| {
        let then = first.iter().find(|then| then.path == now.path && then.device == now.device);
        then.is_some_and(|then| now.io_errors > then.io_errors)
    };
    let state = file_systems.iter().find(grew)?;
    let (path, device) = (state.path.display(), named(state));
    Some(format!("the disk of {path}{device} fails requests; check its cable and power, copy its data, and replace it"))
}

fn named(state: &FileSystemState) -> String {
    if state.device.is_empty() { String::new() } else { format!(" ({})", state.device) }
}

fn voltage(readings: &BoardReadings, board_times: &BoardMoment) -> Option<String> {
    let alarm = readings.voltages.iter().find(|alarm| alarm.is_low);
    let alarm = alarm.or_else(|| readings.voltages.first().filter(|_| board_times.is_alarmed))?;
    Some(format!("{} has reported a low supply voltage; use a stronger power supply and a short cable", alarm.sensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::board::{FlashWear, PowerSupply, VoltageAlarm};

    struct Board {
        health: BoardHealth,
        begun: Instant,
    }

    impl Board {
        fn new() -> Self {
            Self { health: BoardHealth::default(), begun: Instant::now() }
        }

        /// The conditions after readings at this second, and the reasons of the events.
        fn note(&mut self, second: u64, readings: &BoardReadings, is_alarmed: bool) -> (Vec<String>, Vec<String>) {
            let now = Time::from_unix_nanos(1_900_000_000_000_000_000 + i64::try_from(second).unwrap() * 1_000_000_000);
            let instant = self.begun + Duration::from_secs(second);
            let time = BoardMoment { now, instant, built: Some(1_800_000_000), is_alarmed };
            let events = self.health.note(readings.clone(), &time);
            let shown = |condition: &BoardCondition| format!("{}={}", condition.problem.as_str(), condition.holds);
            let events = events.iter().map(|event| event.reason.as_str().to_owned()).collect();
            (self.health.conditions().iter().map(shown).collect(), events)
        }
    }

    fn file_system(path: &str, is_read_only: bool, errors: u64, io_errors: u64) -> FileSystemState {
        let (errors, io_errors) = (Some(errors), Some(io_errors));
        FileSystemState { path: path.into(), device: "sda1".to_owned(), is_read_only, errors, io_errors }
    }

    fn flash_of(tenths_used: u8, reserve: u8) -> BoardReadings {
        let flash = vec![FlashWear { device: "mmcblk0".to_owned(), tenths_used, reserve }];
        BoardReadings { flash, ..BoardReadings::default() }
    }

    #[test]
    fn machine_without_readings_has_no_conditions() {
        let mut board = Board::new();
        let file_systems = vec![file_system("/", true, 0, 5), file_system("/data", false, 0, 5)];
        let readings = BoardReadings { file_systems, ..BoardReadings::default() };
        assert_eq!(board.note(0, &readings, true), (vec![], vec![]));
    }

    #[test]
    fn flash_is_worn_at_the_end_of_its_life_or_reserve() {
        for (tenths, reserve, expected) in [
            (1, 1, None),
            (9, 1, None),
            (10, 1, Some("mmcblk0 is worn, up to 100 % of its life is used; ")),
            (11, 1, Some("mmcblk0 is worn, its life is over; ")),
            (0, 2, Some("mmcblk0 is worn, most of its reserved blocks are used; ")),
            (11, 3, Some("mmcblk0 is worn, its life is over, nearly all of its reserved blocks are used; ")),
        ] {
            let mut board = Board::new();
            let (shown, events) = board.note(0, &flash_of(tenths, reserve), false);
            assert_eq!(shown, [format!("FlashWorn={}", expected.is_some())], "{tenths} {reserve}");
            assert_eq!(events.is_empty(), expected.is_none());
            let message = &board.health.conditions()[0].message;
            assert!(message.starts_with(expected.unwrap_or("the flash memory has life left")), "{message}");
        }
    }

    #[test]
    fn momentary_problem_holds_for_a_while_and_keeps_its_time() {
        let mut board = Board::new();
        let alarm = |is_low| BoardReadings {
            voltages: vec![VoltageAlarm { sensor: "rpi_volt".to_owned(), is_low }],
            ..BoardReadings::default()
        };
        let shows = |holds: bool| vec![format!("Undervoltage={holds}")];
        assert_eq!(board.note(0, &alarm(false), false), (shows(false), vec![]));
        assert_eq!(board.note(60, &alarm(true), false), (shows(true), vec!["Undervoltage".to_owned()]));
        let since = board.health.conditions()[0].since;
        assert_eq!(board.note(120, &alarm(false), true), (shows(true), vec![]), "the kernel has reported another one");
        assert_eq!(board.note(719, &alarm(false), false), (shows(true), vec![]));
        assert_eq!(board.health.conditions()[0].since, since);
        assert_eq!(board.note(720, &alarm(false), false), (shows(false), vec!["NoUndervoltage".to_owned()]));
    }

    #[test]
    fn temperature_at_its_limit_overheats_the_board() {
        let zone = |millidegrees, limit_millidegrees| BoardReadings {
            zones: vec![ThermalZone { name: "cpu-thermal".to_owned(), millidegrees, limit_millidegrees }],
            ..BoardReadings::default()
        };
        let mut board = Board::new();
        assert_eq!(board.note(0, &zone(99_000, None), false).0, [""; 0]);
        assert_eq!(board.note(1, &zone(84_999, Some(85_000)), false).0, ["Overheated=false"]);
        assert_eq!(board.note(2, &zone(85_000, Some(85_000)), false).0, ["Overheated=true"]);
        let message =
            "cpu-thermal has reached 85 °C, where the board slows down or switches off; cool it or lower its load";
        assert_eq!(board.health.conditions()[0].message, message);
    }

    #[test]
    fn file_system_that_becomes_read_only_or_has_errors_is_a_problem() {
        let readings = |root, data| BoardReadings { file_systems: vec![root, data], ..BoardReadings::default() };
        let root = |read_only, io_errors| file_system("/", read_only, 0, io_errors);
        let data = |read_only, errors| file_system("/data", read_only, errors, 0);
        let mut board = Board::new();
        assert_eq!(board.note(0, &readings(root(false, 2), data(false, 0)), false).0, [""; 0]);
        assert_eq!(board.note(1, &readings(root(true, 2), data(false, 0)), false).0, ["ReadonlyFilesystem=true"]);
        assert_eq!(
            board.note(2, &readings(root(false, 3), data(false, 0)), false).0,
            ["ReadonlyFilesystem=false", "StorageErrors=true"]
        );
        let message = &board.health.conditions()[1].message;
        assert!(message.starts_with("the disk of / (sda1) fails requests; "), "{message}");
        let mut board = Board::new();
        let (shown, events) = board.note(0, &readings(root(true, 0), data(true, 1)), false);
        assert_eq!(shown, ["ReadonlyFilesystem=true", "StorageErrors=true"]);
        assert_eq!(events, ["ReadonlyFilesystem", "StorageErrors"]);
        assert!(board.health.conditions()[0].message.starts_with("/data (sda1) is read-only; "));
        assert!(board.health.conditions()[1].message.starts_with("/data (sda1) has recorded errors; "));
    }

    #[test]
    fn clock_before_the_build_is_unset() {
        let at = |seconds: i64| {
            let now = Time::from_unix_nanos(seconds * 1_000_000_000);
            let time = BoardMoment { now, instant: Instant::now(), built: Some(1_800_000_000), is_alarmed: false };
            let mut health = BoardHealth::default();
            health.note(BoardReadings::default(), &time);
            health.conditions().iter().any(|condition| condition.holds)
        };
        assert_eq!([at(1000), at(1_900_000_000)], [true, false]);
    }

    #[test]
    fn only_a_discharging_battery_is_low() {
        let supply = |percent, is_discharging| BoardReadings {
            supplies: vec![PowerSupply {
                name: "BAT0".to_owned(),
                is_battery: true,
                is_online: None,
                percent,
                is_discharging,
            }],
            ..BoardReadings::default()
        };
        for (percent, is_discharging, expected) in
            [(Some(15), true, true), (Some(16), true, false), (Some(2), false, false), (None, true, false)]
        {
            let (shown, _) = Board::new().note(0, &supply(percent, is_discharging), false);
            assert_eq!(shown, [format!("BatteryLow={expected}")], "{percent:?} {is_discharging}");
        }
    }
}
