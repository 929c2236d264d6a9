//! What the kernel says from now on, record by record.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::rt;

const DEVICE: &str = "/dev/kmsg";
/// The kernel gives each record whole, and has none that is longer.
const LONGEST: usize = 8192;

/// The end of the kernel's log.
#[derive(Debug)]
pub(crate) struct KernelLog {
    device: rt::Async<File>,
    record: Box<[u8]>,
}

impl KernelLog {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let mut device = OpenOptions::new().read(true).custom_flags(flags).open(DEVICE)?;
        device.seek(SeekFrom::End(0))?;
        let device = rt::Async::new_nonblocking(device)?;
        Ok(Self { device, record: vec![0; LONGEST].into_boxed_slice() })
    }

    /// The next record, as the kernel writes it: `priority,number,time,flags;text` and a line's end.
    pub(crate) async fn next(&mut self) -> io::Result<String> {
        loop {
            self.device.readable().await?;
            let mut device = self.device.get_ref();
            match device.read(&mut self.record) {
                Ok(length) => {
                    let record = self.record.get(..length).unwrap_or_default();
                    return Ok(String::from_utf8_lossy(record).into_owned());
                }
                // Read by nobody, it has been overwritten: the next one is the oldest that there is.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
