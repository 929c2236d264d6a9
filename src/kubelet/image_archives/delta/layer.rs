//! Uncompressed layers in unnamed files.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ring::digest::{Context, SHA256};

use crate::kubelet::image_archives::archive_list::Failure;
use crate::kubelet::image_archives::contents::{ARCHIVE_HEAD_BYTES, Packing};
use crate::kubelet::image_archives::import::unusable;
use crate::kubelet::image_archives::manifest::Digest;

/// An unnamed file in the directory.
pub(super) fn temporary(directory: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_TMPFILE).open(directory);
    file.map_err(|error| Failure::Failed(format!("it cannot be unpacked: {error}")))
}

/// The digest of what is written.
pub(super) struct Hash(Context);

impl Hash {
    pub(super) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn is(self, digest: &Digest) -> bool {
        let found = self.0.finish();
        found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>() == digest.hex()
    }
}

/// Appends the uncompressed bytes of a layer to `sink`, if they have this digest. Returns their number, of at most
/// `limit`.
pub(super) fn unpack(mut raw: File, diff_id: &Digest, limit: u64, sink: &mut dyn Write) -> Result<u64, Failure> {
    raw.rewind().map_err(unusable)?;
    let mut head = Vec::new();
    { &raw }.take(u64::try_from(ARCHIVE_HEAD_BYTES).unwrap_or_default()).read_to_end(&mut head).map_err(unusable)?;
    raw.rewind().map_err(unusable)?;
    let wrong = |what: &str| Failure::Refused(format!("layer {diff_id} {what}"));
    let mut hash = Hash::new();
    // Empty layers and old tars have no magic number.
    let Some(Packing::By(program)) = Packing::of(&head) else {
        let length = copy(&mut raw, limit, &mut hash, sink)?;
        return length.filter(|_| hash.is(diff_id)).ok_or_else(|| wrong("has other content"));
    };
    let mut command = Command::new(program);
    command.arg("-dc").stdin(raw).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command
        .spawn()
        .map_err(|error| Failure::Failed(format!("it is packed by {program}, and {program} cannot be run: {error}")))?;
    // Dropped after reading, so that the program ends even if output is left.
    let copied = child.stdout.take().map_or(Ok(None), |mut output| copy(&mut output, limit, &mut hash, sink));
    let status = child.wait().map_err(unusable)?;
    let length = copied?.filter(|_| status.success() && hash.is(diff_id));
    length.ok_or_else(|| wrong("has other content, or is damaged"))
}

/// The number of bytes; `None` if there are more than `limit`.
fn copy(from: &mut dyn Read, limit: u64, hash: &mut Hash, sink: &mut dyn Write) -> Result<Option<u64>, Failure> {
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let bytes = match from.read(&mut buffer) {
            Ok(0) => return Ok(Some(length)),
            Ok(count) => buffer.get(..count).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unusable(error)),
        };
        length += u64::try_from(bytes.len()).unwrap_or_default();
        if length > limit {
            return Ok(None);
        }
        hash.update(bytes);
        sink.write_all(bytes).map_err(|error| Failure::Failed(format!("it cannot be unpacked: {error}")))?;
    }
}
