//! Connections to ports of this machine, carried to ports of a pod: all of them over one session, two streams for each.
//!
//! A session has no windows, so that whose reader is slow would hold up everybody else. Some of what is for each connection is
//! kept; one that takes nothing of it for long goes, where others wait for it.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::session::{CHUNK, Session, SessionError};
use crate::cli::{complain, print};
use crate::wire::spdy::{Event, StreamId};

/// Ports that are listened on, and the pod's for each.
pub(super) struct Listeners(Vec<(TcpListener, u16)>);

impl Listeners {
    /// Opens all of them, and says so for each; else one line about which is not to be had.
    pub(super) fn open(addresses: &[IpAddr], ports: &[(u16, u16)]) -> Result<Self, String> {
        let mut all = Vec::new();
        for (local, remote) in ports {
            for address in addresses {
                let failed = |error: io::Error| format!("listen on {address}, port {local}: {error}");
                let listener = TcpListener::bind((*address, *local)).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                all.push((listener, *remote));
            }
        }
        Ok(Self(all))
    }

    /// As kubectl tells it.
    fn lines(&self) -> String {
        let line = |(listener, remote): &(TcpListener, u16)| {
            let local = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
            format!("Forwarding from {local} -> {remote}\n")
        };
        self.0.iter().map(line).collect()
    }
}

struct Forwarder<F> {
    /// Opens another session, to the pod as it is then.
    open: F,
    session: Session,
    /// The runtime has refused a connection: it may be that the pod has another sandbox by now.
    is_doubtful: bool,
    listeners: Listeners,
    signals: SignalFd,
    connections: Vec<Connection>,
    requests: u64,
}

struct Connection {
    local: TcpStream,
    remote: u16,
    data: StreamId,
    error: StreamId,
    /// What the pod has sent and the local side has not taken.
    unwritten: Vec<u8>,
    /// When some of it was taken last, or came where there was nothing.
    stirred: Instant,
    /// The local side may still say something.
    is_heard: bool,
    /// The pod says no more.
    is_said: bool,
    /// Nobody wants any more of it.
    is_dropped: bool,
    /// What the runtime says of it.
    fault: Vec<u8>,
    is_judged: bool,
}

/// What there is to wait for, in the order in which it is asked.
enum Who {
    Session,
    Signals,
    Listener(usize),
    Connection(usize),
}

/// The signals that end forwarding, as an event from now on.
pub(super) fn signals() -> io::Result<SignalFd> {
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        ending.add(signal);
    }
    ending.thread_block()?;
    Ok(SignalFd::with_flags(&ending, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Until a signal ends it, or the pod is gone. `open` gives a session, again where the pod was replaced.
pub(super) fn forward<F>(open: F, listeners: Listeners, signals: SignalFd) -> Result<(), SessionError>
where
    F: Fn() -> Result<Session, SessionError>,
{
    let (session, connections) = (open()?, Vec::new());
    print(&listeners.lines());
    let mut forwarder = Forwarder { open, session, is_doubtful: false, listeners, signals, connections, requests: 0 };
    loop {
        forwarder.understand()?;
        forwarder.clear();
        if forwarder.is_doubtful && forwarder.connections.is_empty() {
            forwarder.session = (forwarder.open)()?;
            forwarder.is_doubtful = false;
        }
        if forwarder.session.is_over() {
            return Err(SessionError::Refused("the connection to the pod is lost".to_owned()));
        }
        for (who, flags) in forwarder.wait().map_err(|error| SessionError::Local("wait", error))? {
            match who {
                Who::Signals => return Ok(()),
                Who::Session => {
                    let may_read = forwarder.may_read();
                    forwarder.session.go_on(may_read)?;
                }
                Who::Listener(index) => forwarder.accept(index),
                Who::Connection(index) => forwarder.go_on(index, flags),
            }
        }
        // Who came first is not always heard first: the session may have no room for the others then.
        if forwarder.connections.len() > 1 {
            forwarder.connections.rotate_left(1);
        }
    }
}

impl<F> Forwarder<F> {
    fn understand(&mut self) -> Result<(), SessionError> {
        while let Some(event) = self.session.next_event()? {
            let (Event::Data { stream, .. } | Event::End(stream) | Event::Reset(stream)) = event else { continue };
            let mut connections = self.connections.iter_mut();
            let Some(of) = connections.find(|of| of.data == stream || of.error == stream) else { continue };
            match event {
                Event::Data { bytes, .. } if of.data == stream => {
                    if of.unwritten.is_empty() {
                        of.stirred = Instant::now();
                    }
                    of.unwritten.extend_from_slice(bytes);
                }
                Event::Data { bytes, .. } => {
                    let room = MOST_FAULT.saturating_sub(of.fault.len());
                    of.fault.extend(bytes.iter().take(room));
                }
                _ if of.data == stream => of.is_said = true,
                _ => of.is_judged = true,
            }
        }
        Ok(())
    }

    /// Lets go of connections that are over.
    fn clear(&mut self) {
        let others_wait = self.connections.len() > 1;
        let (session, is_doubtful) = (&mut self.session, &mut self.is_doubtful);
        self.connections.retain(|of| {
            let has_fault = of.is_judged && !of.fault.is_empty();
            let is_stuck = others_wait && of.holds_up() && of.stirred.elapsed() >= STUCK;
            if has_fault {
                *is_doubtful = true;
                let fault = String::from_utf8_lossy(&of.fault);
                complain(&fault.split_whitespace().collect::<Vec<_>>().join(" "));
            } else if is_stuck {
                complain(&format!("a connection to port {} was closed: it took nothing, and others waited", of.remote));
            }
            let is_passed_on = of.is_said && of.unwritten.is_empty();
            if is_passed_on {
                let _ = of.local.shutdown(Shutdown::Write);
            }
            // Why there was nothing to say may come after the end of what was said.
            let is_over = of.is_dropped || has_fault || is_stuck || (is_passed_on && of.is_judged);
            if is_over {
                // Also what the other side has not ended is over.
                session.cancel(of.data);
                session.cancel(of.error);
                let _ = of.local.shutdown(Shutdown::Both);
            }
            !is_over
        });
    }

    /// Somebody who takes nothing holds up the session only when he has more than enough.
    fn may_read(&self) -> bool {
        !self.connections.iter().any(Connection::holds_up)
    }

    fn wait(&self) -> io::Result<Vec<(Who, PollFlags)>> {
        let takes_more = self.session.takes_more();
        let mut asked: Vec<(Who, BorrowedFd<'_>, PollFlags)> = vec![
            (Who::Signals, self.signals.as_fd(), PollFlags::IN),
            (Who::Session, self.session.fd(), self.session.interest(self.may_read())),
        ];
        if takes_more && self.connections.len() < MOST_CONNECTIONS {
            let listeners = self.listeners.0.iter().enumerate();
            asked.extend(listeners.map(|(index, (on, _))| (Who::Listener(index), on.as_fd(), PollFlags::IN)));
        }
        for (index, of) in self.connections.iter().enumerate() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, of.is_heard && takes_more);
            flags.set(PollFlags::OUT, !of.unwritten.is_empty());
            asked.push((Who::Connection(index), of.local.as_fd(), flags));
        }
        asked.retain(|(_, _, flags)| !flags.is_empty());
        let mut fds: Vec<PollFd<'_>> =
            asked.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let stuck = self.connections.iter().filter(|of| of.holds_up() && self.connections.len() > 1);
        let since = stuck.map(|of| of.stirred).min();
        let limit = since.map(|since| STUCK.saturating_sub(since.elapsed()) + Duration::from_millis(1));
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let found = asked.into_iter().zip(found).filter(|(_, flags)| !flags.is_empty());
        Ok(found.map(|((who, _, _), flags)| (who, flags)).collect())
    }

    fn accept(&mut self, listener: usize) {
        let Some((listener, remote)) = self.listeners.0.get(listener) else { return };
        // Who has gone already is nobody's trouble.
        let Ok((local, _)) = listener.accept() else { return };
        if local.set_nonblocking(true).is_err() {
            return;
        }
        let _ = local.set_nodelay(true);
        let (port, request) = (remote.to_string(), self.requests.to_string());
        self.requests += 1;
        let headers = [("port", &*port), ("requestid", &*request)];
        let error = self.session.open_stream("error", &headers);
        self.session.end(error);
        let data = self.session.open_stream("data", &headers);
        self.connections.push(Connection {
            local,
            remote: *remote,
            data,
            error,
            unwritten: Vec::new(),
            stirred: Instant::now(),
            is_heard: true,
            is_said: false,
            is_dropped: false,
            fault: Vec::new(),
            is_judged: false,
        });
    }

    fn go_on(&mut self, index: usize, flags: PollFlags) {
        let Some(of) = self.connections.get_mut(index) else { return };
        if !of.unwritten.is_empty() {
            match of.local.write(&of.unwritten) {
                Ok(written) => {
                    of.unwritten.drain(..written);
                    of.stirred = Instant::now();
                }
                Err(error) if is_nothing(&error) => {}
                Err(_) => of.is_dropped = true,
            }
        }
        let can_be_read = flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
        if of.is_heard && can_be_read && self.session.takes_more() {
            let mut chunk = [0; CHUNK];
            match of.local.read(&mut chunk) {
                Ok(0) => {
                    of.is_heard = false;
                    self.session.end(of.data);
                }
                Ok(read) => self.session.data(of.data, chunk.get(..read).unwrap_or_default()),
                Err(error) if is_nothing(&error) => {}
                Err(_) => of.is_dropped = true,
            }
        }
    }
}

impl Connection {
    /// The session is not read on before some of it is taken.
    fn holds_up(&self) -> bool {
        self.unwritten.len() >= MOST_UNWRITTEN
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

const MOST_CONNECTIONS: usize = 128;
/// Bytes for a connection that its reader has not taken, beside what comes at once.
const MOST_UNWRITTEN: usize = 64 * 1024;
const MOST_FAULT: usize = 4096;
/// So long a connection may take nothing while others wait.
const STUCK: Duration = Duration::from_secs(30);
