//! Reads the state of the board: after each node-pressure check, and on a board with sensors every minute and when the
//! kernel reports a low voltage. A machine without sensors needs no timer.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::StatusInputs;
use super::board_health::BoardMoment;
use crate::platform::host::board::voltage_alarm_files;
use crate::platform::host::clock;
use crate::platform::host::sysfs_events::SysfsEvents;
use crate::platform::rt;
use crate::state::pods::SyncEvent;
use crate::types::board::BoardReadings;

pub(crate) struct BoardWatch {
    /// The root of /sys and /proc.
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) status_inputs: Rc<StatusInputs>,
    /// The sync loop's inbox, for events.
    pub(crate) inbox: Sender<SyncEvent>,
}

const BOARD_READ_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest time between two readings.
const MIN_BOARD_READ_INTERVAL: Duration = Duration::from_secs(10);

impl BoardWatch {
    pub(crate) async fn run(self) {
        let alarms = SysfsEvents::of(&voltage_alarm_files(&self.root)).ok();
        let mut is_alarmed = false;
        loop {
            let seen = self.status_inputs.pressure_checks.changes();
            let (root, data) = (self.root.clone(), self.data.clone());
            let readings = rt::blocking(move || BoardReadings::read(&root, &data)).await;
            let has_sensors = readings.has_sensors();
            let time = BoardMoment { now: clock::now(), instant: rt::now(), built: clock::built(), is_alarmed };
            for event in self.status_inputs.note_board(readings, &time) {
                // Events may be dropped when the inbox is full.
                let _ = self.inbox.try_send(SyncEvent::NodeEvent(event));
            }
            is_alarmed = self.wait(seen, has_sensors, alarms.as_ref()).await;
            // Most waits are longer: no timer is needed then.
            let pause = MIN_BOARD_READ_INTERVAL.saturating_sub(rt::elapsed(time.instant));
            if !pause.is_zero() {
                rt::sleep(pause).await;
            }
        }
    }

    /// Until the next reading. Whether the kernel has reported a low voltage.
    async fn wait(&self, generation: u64, has_sensors: bool, alarms: Option<&SysfsEvents>) -> bool {
        let checked = async {
            self.status_inputs.pressure_checks.beyond(generation).await;
            false
        };
        let due = async {
            match has_sensors {
                true => rt::sleep(BOARD_READ_INTERVAL).await,
                false => std::future::pending().await,
            }
            false
        };
        let alarmed = async {
            match alarms {
                Some(alarms) if alarms.happened().await.is_ok() => true,
                Some(_) | None => std::future::pending().await,
            }
        };
        rt::either(alarmed, rt::either(checked, due)).await
    }
}
