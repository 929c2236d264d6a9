//! The watchdogs, which end this process or reset the board when the sync loop stalls.
//!
//! A separate thread pets them, so that it can still record a stall when the thread of the sync loop is stuck. It sends
//! an event to the loop and wakes another task of the same thread, and checks whether both have made progress since
//! (`beats`): a spinning loop starves all other tasks. The runtime and the network do not matter: the loop waits for
//! neither. Without a watchdog there is no thread.
//!
//! The service manager may kill without warning, so a stall is recorded first. A panic is recorded as well.

mod beat_file;
mod beats;
mod device;
mod panic_record;
mod previous_run;
mod stall;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::pulse::{Activity, Pulse};
use super::systemd;
use crate::platform::config::Config;
use crate::platform::host::{clock, thread_state};
use crate::platform::rt;
use crate::state::pods::SyncEvent;
use crate::types::error::ErrorChain;
use beat_file::BeatFile;
use beats::{BeatCheck, BeatState, Progress};
use device::Device;
use stall::StallFile;

pub(crate) use panic_record::{PanicRecord, record_panics};
#[cfg(test)]
pub(crate) use stall::DeviceStatus;
pub(crate) use stall::{Stall, WatchdogStatus};

/// Handle of the watchdog thread, if there is one, and its findings.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: StallFile,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    status: WatchdogStatus,
    last_stall: Option<Stall>,
    last_panic: Option<PanicRecord>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// There is no thread, or no longer.
    #[default]
    Off,
    On,
    /// The process is about to end: the thread releases its devices.
    Ending,
}

impl Watchdog {
    /// Evaluates what the previous process left behind, and starts the thread if a watchdog is on.
    pub(crate) fn start(
        config: &Config,
        pulse: Arc<Pulse>,
        ask: Sender<SyncEvent>,
        wake_other_task: Sender<()>,
    ) -> Self {
        let file = StallFile::below(&config.root_dir);
        let mut beat_path = config.process.local_socket.clone().into_os_string();
        beat_path.push(".beat");
        let beat_path = PathBuf::from(beat_path);
        let last_stall = previous_run::load_last_stall(&file, &beat_path);
        let shared = Arc::new(Shared { file: file.clone(), state: Mutex::default(), wake: Condvar::default() });
        shared.lock().last_stall = last_stall;
        let last_panic = panic_record::load_last_panic(&config.root_dir);
        shared.lock().last_panic = last_panic;
        let device = config.health.watchdog_device.as_deref().map(|path| Device::new(path, Path::new("/sys")));
        let manager = systemd::watchdog_interval();
        if manager.is_some() || device.is_some() {
            let keeper = WatchdogThread {
                shared: Arc::clone(&shared),
                pulse,
                ask,
                wake_other_task,
                progress: Progress::default(),
                beats: BeatState::Idle,
                manager,
                device,
                file,
                files_left: MAX_STALL_RECORDS,
                beat_path,
                beat_file: None,
            };
            shared.lock().phase = Phase::On;
            if let Err(error) = rt::thread("watchdog", || keeper.run()) {
                shared.lock().phase = Phase::Off;
                log!(error, "failed to start the watchdog thread", error = ErrorChain(&error));
            }
        }
        Self(shared)
    }

    pub(crate) fn status(&self) -> WatchdogStatus {
        self.0.lock().status.clone()
    }

    pub(crate) fn last_stall(&self) -> Option<Stall> {
        self.0.lock().last_stall.clone()
    }

    /// The last panic of an earlier process.
    pub(crate) fn last_panic(&self) -> Option<PanicRecord> {
        self.0.lock().last_panic.clone()
    }

    /// Records for the next start that the sync loop ran `rounds` rounds without waiting, while `part` was due. Works
    /// with and without a watchdog.
    pub(crate) fn note_spin(&self, rounds: u32, part: &str) {
        let mut stall = Stall::new(clock::now(), 0, Activity::Spinning, thread_state::of_main_thread());
        stall.rounds = Some(rounds);
        stall.part = Some(part.to_owned());
        self.0.file.write(&stall);
        self.0.lock().last_stall = Some(stall);
    }

    /// Prepares for an orderly end: the device must not reset the board.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        if state.phase == Phase::On {
            state.phase = Phase::Ending;
            self.0.wake.notify_all();
            let ending = |state: &mut State| state.phase == Phase::Ending;
            drop(self.0.wake.wait_timeout_while(state, END_LIMIT, ending));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process starts to end within `wait`.
    fn ends_within(&self, wait: Duration) -> bool {
        let on = |state: &mut State| state.phase == Phase::On;
        let waited = self.wake.wait_timeout_while(self.lock(), wait, on);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase == Phase::Ending
    }
}

/// State of the thread.
struct WatchdogThread {
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    ask: Sender<SyncEvent>,
    /// Wakes the task that counts its turns.
    wake_other_task: Sender<()>,
    progress: Progress,
    beats: BeatState,
    /// The service manager's watchdog interval.
    manager: Option<Duration>,
    device: Option<Device>,
    file: StallFile,
    /// Remaining writes of stall records to disk.
    files_left: u32,
    beat_path: PathBuf,
    beat_file: Option<BeatFile>,
}

impl WatchdogThread {
    fn run(mut self) {
        loop {
            let moves = self.progress.moves(self.pulse.rounds(), self.pulse.other_task_runs());
            let (beats, look) = self.beats.check(moves, Instant::now());
            self.beats = beats;
            match look {
                BeatCheck::Progress { stalled } => {
                    self.pet();
                    if let Some(stalled) = stalled {
                        self.moves_again(stalled);
                    }
                    self.progress.request_beats(self.pulse.rounds(), self.pulse.other_task_runs());
                    // A wake-up that is still pending is enough.
                    let _ = self.wake_other_task.try_send(());
                    // A full inbox is as good as an event: emptying it is a round.
                    let _ = self.ask.try_send(SyncEvent::Beat);
                }
                BeatCheck::Stalled { since } => self.stalls(since),
                BeatCheck::Late | BeatCheck::StillStalled => {}
            }
            if self.shared.ends_within(look.next(self.half())) {
                break;
            }
        }
        if let Some(device) = self.device {
            device.close();
        }
        if let Some(file) = self.beat_file {
            file.remove();
        }
        self.shared.lock().phase = Phase::Off;
        self.shared.wake.notify_all();
    }

    /// Half of the shortest interval.
    fn half(&self) -> Duration {
        let device = self.device.as_ref().map(Device::timeout);
        let interval = self.manager.into_iter().chain(device).min().unwrap_or_default();
        (interval / 2).max(MIN_PET_INTERVAL)
    }

    fn pet(&mut self) {
        if self.manager.is_some() {
            systemd::alive();
        }
        if let Some(device) = &mut self.device {
            device.pet();
        }
        let half = self.half();
        let file = self.beat_file.take().or_else(|| BeatFile::create(&self.beat_path));
        self.beat_file = file.filter(|file| file.beat(half.saturating_mul(2)));
        let status = WatchdogStatus {
            service_manager_seconds: self.manager.map(|interval| interval.as_secs()),
            device: self.device.as_ref().and_then(Device::status),
        };
        self.shared.lock().status = status;
    }

    /// Writes the record first: logging may block on the stuck thread.
    fn stalls(&mut self, since: Instant) {
        let thread = thread_state::of_main_thread();
        let seconds = since.elapsed().as_secs();
        let stall = Stall::new(clock::now(), seconds, self.pulse.doing(), thread);
        self.write_stall(&stall);
        self.shared.lock().last_stall = Some(stall.clone());
        log!(error, "sync loop stalled, watchdog not answered", seconds = seconds, what = stall.description());
    }

    fn moves_again(&mut self, after: Duration) {
        let stall = self.shared.lock().last_stall.take();
        let stall = stall.map(|stall| Stall { moved_again_after_seconds: Some(after.as_secs()), ..stall });
        if let Some(stall) = &stall {
            self.write_stall(stall);
        }
        self.shared.lock().last_stall = stall;
        log!(warn, "sync loop recovered", seconds = after.as_secs());
    }

    fn write_stall(&mut self, stall: &Stall) {
        if let Some(files_left) = self.files_left.checked_sub(1) {
            self.files_left = files_left;
            self.file.write(stall);
        }
    }
}

/// Shortest interval between pettings, to limit the load.
const MIN_PET_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the thread to release its device at an orderly end.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of records written, so that a loop that stalls again and again does not wear out the flash.
const MAX_STALL_RECORDS: u32 = 20;
