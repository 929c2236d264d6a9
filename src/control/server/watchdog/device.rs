//! A hardware watchdog (`/dev/watchdog`), which resets the board when it is not petted in time.
//!
//! Its timeout is read from sysfs and not changed: that would take an ioctl, and drivers have a module option for it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::stall::DeviceStatus;
use crate::platform::host::signals::LAST_WRITE;
use crate::types::error::ErrorChain;

#[derive(Debug)]
pub(super) struct Device {
    path: PathBuf,
    /// `/sys`.
    sys: PathBuf,
    open: Option<OpenDevice>,
    /// The failure to open it was logged.
    failure_logged: bool,
}

#[derive(Debug)]
struct OpenDevice {
    file: Arc<File>,
    timeout: Duration,
    reset_the_board: bool,
}

impl Device {
    pub(super) fn new(path: &Path, sys: &Path) -> Self {
        Self { path: path.to_owned(), sys: sys.to_owned(), open: None, failure_logged: false }
    }

    /// The device's timeout, or a safe guess if it is unknown. A device that is not open is retried at half of this.
    pub(super) fn timeout(&self) -> Duration {
        self.open.as_ref().map_or(ABSENT_DEVICE_TIMEOUT, |open| open.timeout)
    }

    /// Pets the device, and opens it first if it is not open: it may appear late, or disappear. Pods run without it.
    pub(super) fn pet(&mut self) {
        let open = match self.open.take() {
            Some(open) => Ok(open),
            None => self.open(),
        };
        let petted = open.and_then(|open| (&*open.file).write_all(PET).map(|()| open));
        match petted {
            Ok(open) => {
                self.failure_logged = false;
                self.open = Some(open);
            }
            Err(error) if !self.failure_logged => {
                self.failure_logged = true;
                let path = self.path.display();
                log!(error, "watchdog device not in use, trying again", path = path, error = ErrorChain(&error));
            }
            Err(_) => {}
        }
    }

    fn open(&self) -> io::Result<OpenDevice> {
        // Do not open a pipe without a reader, or a file on disk.
        let file = OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&self.path)?;
        let kind = file.metadata()?.file_type();
        if !kind.is_char_device() && !kind.is_fifo() {
            return Err(io::Error::other("it is no device"));
        }
        let facts = DeviceInfo::read(&self.path, &self.sys);
        let path = self.path.display();
        match facts.timeout {
            Some(timeout) => log!(info, "watchdog device armed", path = path, timeout_seconds = timeout.as_secs()),
            None => {
                let guess = UNKNOWN_TIMEOUT.as_secs();
                log!(warn, "watchdog device armed, its timeout is unknown", path = path, taken_seconds = guess);
            }
        }
        if facts.nowayout {
            log!(warn, "watchdog device cannot be stopped: the board resets if coracle stays down", path = path);
        }
        if facts.reset_the_board {
            log!(warn, "the watchdog device caused the last reset", path = path);
        }
        let timeout = facts.timeout.unwrap_or(UNKNOWN_TIMEOUT);
        let file = Arc::new(file);
        // A forced exit does not reach `close`: an armed device would reset the board.
        LAST_WRITE.set(&file, MAGIC_CLOSE);
        Ok(OpenDevice { file, timeout, reset_the_board: facts.reset_the_board })
    }

    pub(super) fn status(&self) -> Option<DeviceStatus> {
        let open = self.open.as_ref();
        Some(DeviceStatus {
            path: self.path.display().to_string(),
            armed: open.is_some(),
            timeout_seconds: self.timeout().as_secs(),
            reset_the_board: open.is_some_and(|open| open.reset_the_board),
        })
    }

    /// Stops the watchdog, so that an orderly end does not reset the board.
    pub(super) fn close(self) {
        let Some(open) = self.open else { return };
        if let Err(error) = (&*open.file).write_all(MAGIC_CLOSE) {
            log!(warn, "failed to stop the watchdog device", path = self.path.display(), error = ErrorChain(&error));
        }
    }
}

/// The properties of a watchdog in sysfs.
#[derive(Debug, Default, PartialEq)]
struct DeviceInfo {
    timeout: Option<Duration>,
    nowayout: bool,
    reset_the_board: bool,
}

impl DeviceInfo {
    fn read(device: &Path, sys: &Path) -> Self {
        let Some(name) = name(device) else { return Self::default() };
        let folder = sys.join("class/watchdog").join(name);
        let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u32>().ok();
        Self {
            timeout: number("timeout")
                .filter(|seconds| *seconds > 0)
                .map(|seconds| Duration::from_secs(seconds.into())),
            nowayout: number("nowayout") == Some(1),
            reset_the_board: number("bootstatus").is_some_and(|bits| bits & CARD_RESET != 0),
        }
    }
}

/// The device's name in sysfs. `/dev/watchdog` is the old name of the first one.
fn name(device: &Path) -> Option<String> {
    let path = device.canonicalize().ok()?;
    let name = path.file_name()?.to_str()?;
    Some(if name == "watchdog" { "watchdog0".to_owned() } else { name.to_owned() })
}

/// Assumed timeout: boards have ten seconds or more.
const UNKNOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Of no device: it is looked for at half of this, because it may appear late.
const ABSENT_DEVICE_TIMEOUT: Duration = Duration::from_secs(60);
/// Any byte except the one that stops the watchdog.
const PET: &[u8] = b".";
const MAGIC_CLOSE: &[u8] = b"V";
/// `WDIOF_CARDRESET`: the watchdog caused the last reset.
const CARD_RESET: u32 = 0x20;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A directory with a fake device `watchdog1` (a pipe), and its sysfs files.
    struct Board(PathBuf);

    impl Board {
        fn new(name: &str, facts: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir().join(format!("coracle-watchdog-{name}-{}", std::process::id()));
            let class = folder.join("class/watchdog/watchdog1");
            fs::create_dir_all(&class).unwrap();
            for (file, text) in facts {
                fs::write(class.join(file), text).unwrap();
            }
            Self(folder)
        }

        fn device(&self) -> Device {
            Device::new(&self.path(), &self.0)
        }

        fn path(&self) -> PathBuf {
            self.0.join("watchdog1")
        }

        /// Creates the device. Its input can be read from the result.
        fn plug_in(&self) -> File {
            mkfifo(&self.path(), Mode::S_IRWXU).unwrap();
            OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(self.path()).unwrap()
        }
    }

    impl Drop for Board {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn device_is_petted_and_stopped_at_the_end() {
        let board = Board::new("petted", &[("timeout", "15\n"), ("nowayout", "1\n"), ("bootstatus", "32\n")]);
        let mut end = board.plug_in();
        let mut device = board.device();
        assert!(!device.status().unwrap().armed);
        device.pet();
        device.pet();
        let status = device.status().unwrap();
        assert_eq!((status.armed, status.timeout_seconds, status.reset_the_board), (true, 15, true));
        device.close();
        let mut written = String::new();
        end.read_to_string(&mut written).unwrap();
        assert_eq!(written, "..V");
    }

    #[test]
    fn late_device_is_opened_and_a_missing_timeout_guessed() {
        let board = Board::new("late", &[("timeout", "0\n")]);
        let mut device = board.device();
        device.pet();
        device.pet();
        assert!(device.failure_logged && !device.status().unwrap().armed);
        let mut end = board.plug_in();
        device.pet();
        assert!(!device.failure_logged && device.status().unwrap().armed);
        assert_eq!(device.timeout(), UNKNOWN_TIMEOUT);
        drop(device);
        let mut written = String::new();
        end.read_to_string(&mut written).unwrap();
        assert_eq!(written, ".");
    }

    #[test]
    fn regular_file_is_refused_as_a_device() {
        let board = Board::new("file", &[]);
        fs::write(board.path(), "kept").unwrap();
        let mut device = board.device();
        device.pet();
        assert!(device.failure_logged);
        device.close();
        assert_eq!(fs::read_to_string(board.path()).unwrap(), "kept");
    }
}
