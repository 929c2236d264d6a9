//! The streams of a command in a container, or of the container's own process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};

use super::outcome::Outcome;
use super::session::{SESSION_READ_BYTES, Session, SessionError};
use super::terminal::{self, RawTerminal};
use crate::protocol::spdy::{Event, StreamId};

/// The streams besides stdout and the error stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamOptions {
    pub(super) stdin: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

struct Conversation {
    session: Session,
    terminal: Option<RawTerminal>,
    /// `None` once the input has ended.
    stdin: Option<StreamId>,
    resize: Option<StreamId>,
    stdout: Output,
    stderr: Option<Output>,
    status_stream: StreamId,
    status: Vec<u8>,
    status_is_whole: bool,
}

/// A stream and its data that is not yet written.
struct Output {
    stream: StreamId,
    unwritten: Vec<u8>,
    is_over: bool,
}

/// The readable and writable streams.
struct Ready {
    session: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    signal: bool,
}

/// Copies the streams until both sides have finished.
pub(super) fn converse(mut session: Session, wanted: StreamOptions) -> Result<Outcome, SessionError> {
    let status_stream = session.open_stream("error", &[]);
    let stdin = wanted.stdin.then(|| session.open_stream("stdin", &[]));
    let stdout = Output::new(session.open_stream("stdout", &[]));
    let stderr = wanted.stderr.then(|| Output::new(session.open_stream("stderr", &[])));
    let resize = wanted.tty.then(|| session.open_stream("resize", &[]));
    let is_typed_on = wanted.tty && wanted.stdin && io::IsTerminal::is_terminal(&io::stdin());
    let terminal = is_typed_on.then(RawTerminal::take).transpose();
    let terminal = terminal.map_err(|error| SessionError::Local("set the terminal to raw mode", error))?;
    let (status, status_is_whole) = (Vec::new(), false);
    let mut conversation =
        Conversation { session, terminal, stdin, resize, stdout, stderr, status_stream, status, status_is_whole };
    conversation.send_terminal_size();
    loop {
        conversation.understand()?;
        if conversation.is_over() {
            return Ok(Outcome::of(&conversation.status));
        }
        let ready = conversation.wait().map_err(|error| SessionError::Local("wait", error))?;
        if let Some(outcome) = conversation.go_on(&ready)? {
            return Ok(outcome);
        }
    }
}

impl Conversation {
    /// Handles the session's events.
    fn understand(&mut self) -> Result<(), SessionError> {
        while let Some(event) = self.session.next_event()? {
            match event {
                Event::Data { stream, bytes } if stream == self.status_stream => {
                    let room = MAX_STATUS_BYTES.saturating_sub(self.status.len());
                    self.status.extend(bytes.iter().take(room));
                }
                Event::Data { stream, bytes } => {
                    if let Some(output) = output(&mut self.stdout, &mut self.stderr, stream) {
                        output.unwritten.extend_from_slice(bytes);
                    }
                }
                Event::End(stream) | Event::Reset(stream) if stream == self.status_stream => {
                    self.status_is_whole = true
                }
                Event::End(stream) | Event::Reset(stream) => {
                    if let Some(output) = output(&mut self.stdout, &mut self.stderr, stream) {
                        output.is_over = true;
                    } else if matches!(event, Event::Reset(_)) && self.stdin == Some(stream) {
                        // The command has closed its input.
                        self.stdin = None;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let outputs = || std::iter::once(&self.stdout).chain(&self.stderr);
        let all_said = self.status_is_whole && outputs().all(|output| output.is_over);
        (all_said || self.session.is_over()) && outputs().all(|output| output.unwritten.is_empty())
    }

    /// Reads from the other side only after its earlier data is passed on.
    fn may_read(&self) -> bool {
        self.stdout.unwritten.is_empty() && self.stderr.as_ref().is_none_or(|stderr| stderr.unwritten.is_empty())
    }

    fn wait(&self) -> io::Result<Ready> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let interest = self.session.interest(self.may_read());
        let takes_input = self.stdin.is_some() && self.session.takes_more();
        let unwritten = |output: &Output| !output.unwritten.is_empty();
        let polled: [Option<(BorrowedFd<'_>, PollFlags)>; 5] = [
            (!interest.is_empty()).then(|| (self.session.fd(), interest)),
            takes_input.then(|| (stdin.as_fd(), PollFlags::IN)),
            unwritten(&self.stdout).then(|| (stdout.as_fd(), PollFlags::OUT)),
            self.stderr.as_ref().is_some_and(unwritten).then(|| (stderr.as_fd(), PollFlags::OUT)),
            self.terminal.as_ref().map(|terminal| (terminal.signals().as_fd(), PollFlags::IN)),
        ];
        let mut fds: Vec<PollFd<'_>> =
            polled.iter().flatten().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let [session, stdin, stdout, stderr, signal] =
            polled.map(|polled| polled.is_some() && ready.next().unwrap_or_default());
        Ok(Ready { session, stdin, stdout, stderr, signal })
    }

    /// Reads and writes what is possible; returns an outcome that ends the conversation early.
    fn go_on(&mut self, ready: &Ready) -> Result<Option<Outcome>, SessionError> {
        if ready.signal {
            let terminal = self.terminal.as_ref().map_or(Ok(None), RawTerminal::take_signal);
            match terminal.map_err(|error| SessionError::Local("wait for signals", error))? {
                Some(signal) => return Ok(Some(by_signal(signal))),
                None => self.send_terminal_size(),
            }
        }
        if ready.session {
            let may_read = self.may_read();
            self.session.go_on(may_read)?;
        }
        if ready.stdin {
            self.pass_input_on();
        }
        let stderr = self.stderr.as_mut().filter(|_| ready.stderr).map_or(Ok(()), |output| output.write(io::stderr()));
        let stdout = if ready.stdout { self.stdout.write(io::stdout()) } else { Ok(()) };
        match stdout.and(stderr) {
            Ok(()) => Ok(None),
            // The reader has closed the pipe, like head(1).
            Err(Errno::PIPE) => Ok(Some(by_signal(nix::libc::SIGPIPE))),
            Err(error) => Err(SessionError::Local("write the command's output", error.into())),
        }
    }

    fn pass_input_on(&mut self) {
        let Some(stream) = self.stdin else { return };
        let mut chunk = [0; SESSION_READ_BYTES];
        match read(io::stdin(), &mut chunk) {
            Ok(come) if come > 0 => self.session.data(stream, chunk.get(..come).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A closed terminal reports an error.
            Ok(_) | Err(_) => {
                self.session.end(stream);
                self.stdin = None;
            }
        }
    }

    fn send_terminal_size(&mut self) {
        if let (Some(stream), Some(size)) = (self.resize, terminal::size()) {
            self.session.data(stream, size.as_bytes());
        }
    }
}

/// The exit code that a shell gives for a signal.
fn by_signal(signal: i32) -> Outcome {
    Outcome::Exited(u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX))
}

fn output<'a>(stdout: &'a mut Output, stderr: &'a mut Option<Output>, stream: StreamId) -> Option<&'a mut Output> {
    std::iter::once(stdout).chain(stderr).find(|output| output.stream == stream)
}

impl Output {
    fn new(stream: StreamId) -> Self {
        Self { stream, unwritten: Vec::new(), is_over: false }
    }

    /// Writes at most what a writable pipe takes without blocking, so that one slow reader does not block the rest.
    /// `O_NONBLOCK` would not end with this process: a terminal shares it with the shell.
    fn write(&mut self, to: impl AsFd) -> Result<(), Errno> {
        let part = self.unwritten.get(..PIPE_BUF).unwrap_or(&self.unwritten);
        match write(to, part) {
            Ok(written) => drop(self.unwritten.drain(..written)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

const PIPE_BUF: usize = 4096;
const MAX_STATUS_BYTES: usize = 64 * 1024;
