//! What the kernel says from now on, record by record.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::platform::rt;

const DEVICE: &str = "/dev/kmsg";
/// The kernel gives each record whole, and has none that is longer.
const LONGEST: usize = 8192;

/// What is read at once: a kernel that writes without end must not keep anybody from other work.
const MOST: usize = 4096;

/// The end of the kernel's log.
#[derive(Debug)]
pub(crate) struct KernelLog {
    device: rt::Async<File>,
    record: RefCell<Box<[u8]>>,
}

impl KernelLog {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let mut device = OpenOptions::new().read(true).custom_flags(flags).open(DEVICE)?;
        device.seek(SeekFrom::End(0))?;
        let device = rt::Async::new_nonblocking(device)?;
        Ok(Self { device, record: RefCell::new(vec![0; LONGEST].into_boxed_slice()) })
    }

    /// Waits until there is something to read.
    pub(crate) async fn written(&self) -> io::Result<()> {
        self.device.readable().await
    }

    /// Hands over what has been written since the last time, as the kernel writes it: `priority,number,time,flags;text`
    /// and a line's end. It never waits.
    pub(crate) fn read(&self, mut each: impl FnMut(&str)) -> io::Result<()> {
        let mut record = self.record.borrow_mut();
        let mut device = self.device.get_ref();
        for _ in 0..MOST {
            match device.read(&mut record) {
                Ok(length) => each(&String::from_utf8_lossy(record.get(..length).unwrap_or_default())),
                // Read by nobody, it has been overwritten: the next one is the oldest that there is.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
