//! Reads new records of the kernel log.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::platform::rt;

const KERNEL_LOG_DEVICE: &str = "/dev/kmsg";
/// Each read returns one whole record, and the kernel's records are never longer.
const MAX_KERNEL_RECORD_BYTES: usize = 8192;

/// Most records of one call: a kernel that logs without end must not block other work.
const MAX_KERNEL_RECORDS_PER_READ: usize = 4096;

/// A reader at the end of the kernel log.
#[derive(Debug)]
pub(crate) struct KernelLog {
    device: rt::Async<File>,
    record: RefCell<Box<[u8]>>,
}

impl KernelLog {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let mut device = OpenOptions::new().read(true).custom_flags(flags).open(KERNEL_LOG_DEVICE)?;
        device.seek(SeekFrom::End(0))?;
        let device = rt::Async::new_nonblocking(device)?;
        Ok(Self { device, record: RefCell::new(vec![0; MAX_KERNEL_RECORD_BYTES].into_boxed_slice()) })
    }

    /// Waits for new records.
    pub(crate) async fn written(&self) -> io::Result<()> {
        self.device.readable().await
    }

    /// Calls `each` for every new record, in the kernel's format `priority,number,time,flags;text` with a newline.
    /// Never blocks.
    pub(crate) fn read(&self, mut each: impl FnMut(&str)) -> io::Result<()> {
        let mut record = self.record.borrow_mut();
        let mut device = self.device.get_ref();
        for _ in 0..MAX_KERNEL_RECORDS_PER_READ {
            match device.read(&mut record) {
                Ok(length) => each(&String::from_utf8_lossy(record.get(..length).unwrap_or_default())),
                // Records were overwritten before they were read: continue with the oldest one left.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
