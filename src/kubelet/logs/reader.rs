//! Reads a log across all its files, and follows it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;

use super::decode::{Decoder, LogStream};
use super::files::{self, LogFile, Opened};
use super::rotated_names::is_compressed;
use super::tail::start_of_tail;
use super::watch::{OF_READERS, Watch};
use crate::platform::rt;
use crate::types::timestamp::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogRequest {
    /// Continue until the container has exited.
    pub(crate) follow: bool,
    /// Start at the last `tail` lines.
    pub(crate) tail: Option<u64>,
    /// Skip lines from before this time.
    pub(crate) since: Option<Timestamp>,
    /// Prefix lines with their time.
    pub(crate) timestamps: bool,
    pub(crate) limit_bytes: Option<u64>,
    /// Only lines of this stream.
    pub(crate) stream: Option<LogStream>,
}

pub(crate) struct LogReader {
    log: PathBuf,
    request: LogRequest,
    decoder: Decoder,
    at: Option<Position>,
    /// Read buffer; freed while waiting for more.
    buffer: Vec<u8>,
    /// Without `follow`: the inode and size of the last file when the log was opened, where reading stops.
    end: Option<(u64, u64)>,
    watch: Option<Watch>,
}

#[derive(Clone, Debug)]
struct Position {
    file: Arc<File>,
    inode: u64,
    /// `None` for the file that was the current one when it was opened.
    stamp: Option<String>,
    offset: u64,
}

/// Read size in bytes.
const LOG_READ_BYTES: usize = 64 << 10;
/// Polling interval without inotify, or of readers beyond the number of watches.
const LOG_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the directory is listed to find a file that exists but is missing from the list.
const MAX_LOG_LISTINGS: usize = 8;

impl LogReader {
    /// Opens the log at `log`. Fails if it has no files.
    pub(crate) async fn open(log: PathBuf, request: LogRequest) -> io::Result<Self> {
        // Watch before listing the files, so that no change is missed.
        let watch = match log.parent() {
            Some(folder) if request.follow => OF_READERS.take().filter(|watch| watch.folder(folder).is_ok()),
            _ => None,
        };
        let (path, wanted) = (log.clone(), request.clone());
        let (at, end) = rt::blocking_for_client(move || begin(&path, &wanted)).await?;
        let decoder = Decoder::new(request.since, request.timestamps, request.limit_bytes).of_stream(request.stream);
        Ok(Self {
            log,
            decoder,
            at: Some(at),
            buffer: Vec::new(),
            end: end.filter(|_| !request.follow),
            watch,
            request,
        })
    }

    /// The next part of the text; `None` at the end. `ended` is closed when nothing more will be written.
    pub(crate) async fn next(&mut self, ended: &Receiver<()>) -> io::Result<Option<Vec<u8>>> {
        loop {
            if self.decoder.is_full() {
                return Ok(None);
            }
            // Checked before reading, so that everything written until then is read.
            let over = !self.request.follow || ended.is_closed();
            let read = self.read().await?;
            let bytes = self.buffer.get(..read).unwrap_or_default();
            let mut text = Vec::with_capacity(read);
            self.decoder.take(bytes, &mut text);
            if read < LOG_READ_BYTES {
                // Frees the buffer while waiting.
                self.buffer = Vec::new();
            }
            if read > 0 {
                if !text.is_empty() {
                    return Ok(Some(text));
                }
            } else if self.is_at_end() {
                return Ok(None);
            } else if self.next_file().await? {
                self.decoder.next_file();
            } else if over {
                return Ok(None);
            } else {
                self.wait(ended).await?;
            }
        }
    }

    /// Reads into the buffer; returns 0 at the current end of the file.
    async fn read(&mut self) -> io::Result<usize> {
        let Some(at) = &mut self.at else { return Ok(0) };
        let most = match self.end {
            Some((inode, size)) if inode == at.inode => size.saturating_sub(at.offset),
            Some(_) | None => u64::MAX,
        };
        let most = usize::try_from(most).unwrap_or(LOG_READ_BYTES).min(LOG_READ_BYTES);
        let (file, offset) = (Arc::clone(&at.file), at.offset);
        let mut buffer = std::mem::take(&mut self.buffer);
        let (buffer, read) = rt::blocking_for_client(move || {
            buffer.resize(LOG_READ_BYTES, 0);
            let read = file.read_at(buffer.get_mut(..most).unwrap_or_default(), offset)?;
            Ok::<_, io::Error>((buffer, read))
        })
        .await?;
        self.buffer = buffer;
        at.offset = at.offset.saturating_add(u64::try_from(read).unwrap_or(0));
        Ok(read)
    }

    fn is_at_end(&self) -> bool {
        let current_inode = self.at.as_ref().map(|at| at.inode);
        self.end.is_some_and(|(inode, _)| current_inode == Some(inode))
    }

    /// Moves to the next file, if there is one.
    async fn next_file(&mut self) -> io::Result<bool> {
        let (log, at) = (self.log.clone(), self.at.clone());
        match rt::blocking_for_client(move || after(&log, at.as_ref())).await? {
            Some(next) => {
                self.at = Some(next);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Waits until something is written, a file appears or disappears, or `ended` is closed.
    async fn wait(&self, ended: &Receiver<()>) -> io::Result<()> {
        let changed = async {
            match &self.watch {
                Some(watch) => watch.changes().await.map(drop),
                None => {
                    rt::sleep(LOG_POLL_INTERVAL).await;
                    Ok(())
                }
            }
        };
        let over = async {
            // Nothing is ever sent; the channel is closed.
            let _ = ended.recv().await;
            Ok(())
        };
        rt::either(changed, over).await
    }
}

/// The uncompressed files, oldest first.
fn readable(log: &Path) -> io::Result<Vec<LogFile>> {
    let mut files = files::list(log)?;
    files.retain(|file| !file.stamp.as_deref().is_some_and(is_compressed));
    Ok(files)
}

/// A start position, and the inode and size of the last file.
type StartPosition = (Position, Option<(u64, u64)>);

fn begin(log: &Path, request: &LogRequest) -> io::Result<StartPosition> {
    for _ in 0..MAX_LOG_LISTINGS {
        if let Some(begun) = begin_in_list(log, request)? {
            return Ok(begun);
        }
    }
    Err(io::Error::other("the log is replaced again and again"))
}

/// `None`: a file was replaced after it was listed.
fn begin_in_list(log: &Path, request: &LogRequest) -> io::Result<Option<StartPosition>> {
    let mut files = readable(log)?;
    let end = files.last().map(|file| (file.inode, file.size));
    if let Some(since) = request.since {
        let first = files.iter().position(|file| file.modified >= since.as_second());
        files.drain(..first.unwrap_or(files.len().saturating_sub(1)));
    }
    let (first_file, mut offset) = match request.tail {
        Some(lines) => start_of_tail(&files, lines)?,
        None => (0, 0),
    };
    for file in files.iter().skip(first_file) {
        match file.open()? {
            Opened::File(opened) => return Ok(Some((Position::new(file, opened, offset), end))),
            Opened::Replaced => return Ok(None),
            Opened::Gone => offset = 0,
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

impl Position {
    fn new(log: &LogFile, file: File, offset: u64) -> Self {
        Self { file: Arc::new(file), inode: log.inode, stamp: log.stamp.clone(), offset }
    }
}

/// The file after this position.
fn after(log: &Path, at: Option<&Position>) -> io::Result<Option<Position>> {
    for _ in 0..MAX_LOG_LISTINGS {
        if let Next::Known(next) = next_in_list(log, at)? {
            return Ok(next);
        }
    }
    Ok(None)
}

enum Next {
    Known(Option<Position>),
    /// A file was replaced after it was listed.
    Replaced,
}

fn next_in_list(log: &Path, at: Option<&Position>) -> io::Result<Next> {
    let look = || -> io::Result<(Vec<LogFile>, Option<usize>)> {
        let files = readable(log)?;
        let index = at.and_then(|at| files.iter().position(|file| file.inode == at.inode));
        Ok((files, index))
    };
    let (mut files, mut current_index) = look()?;
    // A directory listing during a rename may miss a file. If the current file still has a name but is not listed,
    // list again: otherwise the whole log would be read once more.
    for _ in 0..MAX_LOG_LISTINGS {
        let has_a_name = || at.is_some_and(|at| at.file.metadata().is_ok_and(|now| now.nlink() > 0));
        if current_index.is_some() || !has_a_name() {
            break;
        }
        (files, current_index) = look()?;
    }
    let is_later = |file: &&LogFile| match (at, current_index) {
        // Files are removed oldest first. If the current one is gone, those left are newer.
        (Some(at), None) => at.stamp.is_none() || file.stamp.is_none() || file.stamp > at.stamp,
        _ => true,
    };
    for file in files.iter().skip(current_index.map_or(0, |current_index| current_index + 1)).filter(is_later) {
        match file.open()? {
            Opened::File(opened) => return Ok(Next::Known(Some(Position::new(file, opened, 0)))),
            Opened::Replaced => return Ok(Next::Replaced),
            Opened::Gone => {}
        }
    }
    Ok(Next::Known(None))
}

#[cfg(test)]
mod tests;
