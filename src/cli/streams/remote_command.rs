//! A command in a container, or the container's own: what is typed goes in, what it writes comes out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};

use super::outcome::Outcome;
use super::session::{CHUNK, Session, SessionError};
use super::terminal::{self, RawTerminal};
use crate::protocol::spdy::{Event, StreamId};

/// Which streams there are, beside the output and the one for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

struct Conversation {
    session: Session,
    terminal: Option<RawTerminal>,
    /// Open for as long as there is something to be read for it.
    stdin: Option<StreamId>,
    resize: Option<StreamId>,
    stdout: Output,
    stderr: Option<Output>,
    status_stream: StreamId,
    status: Vec<u8>,
    status_is_whole: bool,
}

/// A stream, and what of it is not written yet.
struct Output {
    stream: StreamId,
    unwritten: Vec<u8>,
    is_over: bool,
}

/// What has become possible.
struct Ready {
    session: bool,
    stdin: bool,
    stdout: bool,
    stderr: bool,
    signal: bool,
}

/// Streams of this and that, until all is said.
pub(super) fn converse(mut session: Session, wanted: Wanted) -> Result<Outcome, SessionError> {
    let status_stream = session.open_stream("error", &[]);
    let stdin = wanted.stdin.then(|| session.open_stream("stdin", &[]));
    let stdout = Output::new(session.open_stream("stdout", &[]));
    let stderr = wanted.stderr.then(|| Output::new(session.open_stream("stderr", &[])));
    let resize = wanted.tty.then(|| session.open_stream("resize", &[]));
    let is_typed_on = wanted.tty && wanted.stdin && io::IsTerminal::is_terminal(&io::stdin());
    let terminal = is_typed_on.then(RawTerminal::take).transpose();
    let terminal = terminal.map_err(|error| SessionError::Local("take the terminal over", error))?;
    let (status, status_is_whole) = (Vec::new(), false);
    let mut conversation =
        Conversation { session, terminal, stdin, resize, stdout, stderr, status_stream, status, status_is_whole };
    conversation.tell_size();
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
    /// Takes in what has come.
    fn understand(&mut self) -> Result<(), SessionError> {
        while let Some(event) = self.session.next_event()? {
            match event {
                Event::Data { stream, bytes } if stream == self.status_stream => {
                    let room = MOST_STATUS.saturating_sub(self.status.len());
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
                        // The command takes no more.
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

    /// The other side is heard no further than what it has said is passed on.
    fn may_read(&self) -> bool {
        self.stdout.unwritten.is_empty() && self.stderr.as_ref().is_none_or(|stderr| stderr.unwritten.is_empty())
    }

    fn wait(&self) -> io::Result<Ready> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let interest = self.session.interest(self.may_read());
        let takes_input = self.stdin.is_some() && self.session.takes_more();
        let unwritten = |output: &Output| !output.unwritten.is_empty();
        let asked: [Option<(BorrowedFd<'_>, PollFlags)>; 5] = [
            (!interest.is_empty()).then(|| (self.session.fd(), interest)),
            takes_input.then(|| (stdin.as_fd(), PollFlags::IN)),
            unwritten(&self.stdout).then(|| (stdout.as_fd(), PollFlags::OUT)),
            self.stderr.as_ref().is_some_and(unwritten).then(|| (stderr.as_fd(), PollFlags::OUT)),
            self.terminal.as_ref().map(|terminal| (terminal.signals().as_fd(), PollFlags::IN)),
        ];
        let mut fds: Vec<PollFd<'_>> =
            asked.iter().flatten().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
        let [session, stdin, stdout, stderr, signal] =
            asked.map(|asked| asked.is_some() && found.next().unwrap_or_default());
        Ok(Ready { session, stdin, stdout, stderr, signal })
    }

    /// Does what has become possible; what ends this before the other side has said all.
    fn go_on(&mut self, ready: &Ready) -> Result<Option<Outcome>, SessionError> {
        if ready.signal {
            let terminal = self.terminal.as_ref().map_or(Ok(None), RawTerminal::take_signal);
            match terminal.map_err(|error| SessionError::Local("wait for signals", error))? {
                Some(signal) => return Ok(Some(by_signal(signal))),
                None => self.tell_size(),
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
            // Who reads has had enough, as head(1) does.
            Err(Errno::PIPE) => Ok(Some(by_signal(nix::libc::SIGPIPE))),
            Err(error) => Err(SessionError::Local("write what the command writes", error.into())),
        }
    }

    fn pass_input_on(&mut self) {
        let Some(stream) = self.stdin else { return };
        let mut chunk = [0; CHUNK];
        match read(io::stdin(), &mut chunk) {
            Ok(come) if come > 0 => self.session.data(stream, chunk.get(..come).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal that is gone says so with an error.
            Ok(_) | Err(_) => {
                self.session.end(stream);
                self.stdin = None;
            }
        }
    }

    fn tell_size(&mut self) {
        if let (Some(stream), Some(size)) = (self.resize, terminal::size()) {
            self.session.data(stream, size.as_bytes());
        }
    }
}

/// As a shell counts it.
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

    /// No more than a pipe takes at once that takes anything: nothing else may wait for its reader.
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
const MOST_STATUS: usize = 64 * 1024;
