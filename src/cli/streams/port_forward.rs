//! Forwards connections to local ports to ports of a pod, each in a session of its own.
//!
//! kubectl shares one session between connections. But SPDY sessions here have no flow control windows, and a runtime
//! that blocks on one stream reads none of the others: a peer that resets its connection would block all others.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::session::{SESSION_READ_BYTES, Session, SessionError};
use crate::cli::{complain, print};
use crate::protocol::spdy::{Event, StreamId};

/// Listening sockets, each with the pod's port.
pub(super) struct Listeners(Vec<(TcpListener, u16)>);

impl Listeners {
    /// Binds all ports; fails with one line about the first that cannot be bound.
    pub(super) fn open(addresses: &[IpAddr], ports: &[(u16, u16)]) -> Result<Self, String> {
        let mut listeners = Vec::new();
        for (local, remote) in ports {
            for address in addresses {
                let failed = |error: io::Error| format!("listen on {address}, port {local}: {error}");
                let listener = TcpListener::bind((*address, *local)).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                listeners.push((listener, *remote));
            }
        }
        Ok(Self(listeners))
    }

    /// In kubectl's format.
    fn lines(&self) -> String {
        let line = |(listener, remote): &(TcpListener, u16)| {
            let local = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
            format!("Forwarding from {local} -> {remote}\n")
        };
        self.0.iter().map(line).collect()
    }
}

/// A local connection and its streams in a session.
struct Connection {
    session: Session,
    local: TcpStream,
    data: StreamId,
    error: StreamId,
    /// Data from the pod that is not yet written to the local side.
    unwritten: Vec<u8>,
    /// The local side may still send.
    is_heard: bool,
    /// The pod has finished sending.
    is_said: bool,
    /// Error message from the runtime.
    fault: Vec<u8>,
    is_judged: bool,
}

/// The open connections; each thread signals its end.
struct Carried {
    ended: Arc<OwnedFd>,
    count: u64,
}

/// The event that ended a wait.
enum WakeSource {
    Signals,
    Ended,
    Listener(usize),
}

/// Blocks the signals that end forwarding and makes them readable. Threads inherit the mask, so none may have started.
pub(super) fn signals() -> io::Result<SignalFd> {
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        ending.add(signal);
    }
    ending.thread_block()?;
    Ok(SignalFd::with_flags(&ending, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Runs until a signal arrives or the pod is gone. `open` opens a new session to the pod.
pub(super) fn forward<F>(open: F, listeners: &Listeners, signals: &SignalFd) -> Result<(), SessionError>
where
    F: Fn() -> Result<Session, SessionError>,
{
    // Fails now if there is nothing to forward to, rather than at the first connection.
    drop(open()?);
    let local = |doing| move |error: io::Error| SessionError::Local(doing, error);
    let mut carried = Carried::none().map_err(local("count connections"))?;
    print(&listeners.lines());
    loop {
        for who in wait(listeners, signals, &carried).map_err(local("wait"))? {
            match who {
                WakeSource::Signals => return Ok(()),
                WakeSource::Ended => carried.count_ended(),
                WakeSource::Listener(index) => {
                    let Some((listener, remote)) = listeners.0.get(index) else { continue };
                    // The client has already disconnected.
                    let Ok((accepted, _)) = listener.accept() else { continue };
                    match open() {
                        Ok(session) => carried.carry(session, accepted, *remote),
                        Err(SessionError::Refused(line)) => return Err(SessionError::Refused(line)),
                        // The agent may be back for the next connection.
                        Err(error) => complain(&error.to_string()),
                    }
                }
            }
        }
    }
}

fn wait(listeners: &Listeners, signals: &SignalFd, carried: &Carried) -> io::Result<Vec<WakeSource>> {
    let mut polled = vec![(WakeSource::Signals, signals.as_fd()), (WakeSource::Ended, carried.ended.as_fd())];
    if carried.count < MAX_FORWARDED_CONNECTIONS {
        polled.extend(listeners.0.iter().enumerate().map(|(index, (on, _))| (WakeSource::Listener(index), on.as_fd())));
    }
    let mut fds: Vec<PollFd<'_>> = polled.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    wait_for(&mut fds)?;
    let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    Ok(polled.into_iter().zip(ready).filter(|(_, is_ready)| *is_ready).map(|((who, _), _)| who).collect())
}

fn wait_for(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Carried {
    fn none() -> io::Result<Self> {
        Ok(Self { ended: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?), count: 0 })
    }

    fn count_ended(&mut self) {
        let mut ended = [0; 8];
        if read(&self.ended, &mut ended).is_ok() {
            self.count = self.count.saturating_sub(u64::from_ne_bytes(ended));
        }
    }

    /// Runs in its own thread, so that a blocked connection does not delay others.
    fn carry(&mut self, session: Session, local: TcpStream, remote: u16) {
        let ended = Arc::clone(&self.ended);
        let carry = move || {
            let carried = Connection::open(session, local, remote).and_then(Connection::carry);
            if let Err(error) = carried {
                complain(&error.to_string());
            }
            let _ = write(&ended, &1_u64.to_ne_bytes());
        };
        match thread::Builder::new().stack_size(FORWARD_STACK_BYTES).spawn(carry) {
            Ok(_) => self.count += 1,
            Err(error) => complain(&format!("a connection to port {remote}: {error}")),
        }
    }
}

impl Connection {
    fn open(mut session: Session, local: TcpStream, remote: u16) -> Result<Self, SessionError> {
        local.set_nonblocking(true).map_err(|error| SessionError::Local("accept", error))?;
        let _ = local.set_nodelay(true);
        let port = remote.to_string();
        let headers = [("port", &*port), ("requestid", "0")];
        let error = session.open_stream("error", &headers);
        session.end(error);
        let data = session.open_stream("data", &headers);
        let (unwritten, fault) = (Vec::new(), Vec::new());
        Ok(Self { session, local, data, error, unwritten, is_heard: true, is_said: false, fault, is_judged: false })
    }

    /// Runs until one side has disconnected or both have finished.
    fn carry(mut self) -> Result<(), SessionError> {
        loop {
            self.understand()?;
            if self.is_said && self.unwritten.is_empty() {
                let _ = self.local.shutdown(Shutdown::Write);
            }
            // The runtime's error may arrive after the end of the data.
            let is_all = self.session.is_over() || (self.is_judged && (self.is_said || !self.fault.is_empty()));
            if is_all && self.unwritten.is_empty() {
                return self.outcome();
            }
            let ready = self.wait().map_err(|error| SessionError::Local("wait", error))?;
            let has_gone = self.go_on(ready)?;
            if has_gone {
                return Ok(());
            }
        }
    }

    fn understand(&mut self) -> Result<(), SessionError> {
        while let Some(event) = self.session.next_event()? {
            match event {
                Event::Data { stream, bytes } if stream == self.data => self.unwritten.extend_from_slice(bytes),
                Event::Data { stream, bytes } if stream == self.error => {
                    let room = MAX_FAULT_BYTES.saturating_sub(self.fault.len());
                    self.fault.extend(bytes.iter().take(room));
                }
                Event::End(stream) | Event::Reset(stream) if stream == self.data => self.is_said = true,
                Event::End(stream) | Event::Reset(stream) if stream == self.error => self.is_judged = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn outcome(&self) -> Result<(), SessionError> {
        if !self.fault.is_empty() {
            let fault = String::from_utf8_lossy(&self.fault);
            return Err(SessionError::Refused(fault.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
        let is_whole = self.is_said || self.is_judged;
        is_whole.then_some(()).ok_or_else(|| SessionError::Refused("a connection to the pod is lost".to_owned()))
    }

    /// Reads from the pod only after its earlier data is passed on.
    fn may_read(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Waits for the session and the local side; returns what each is ready for.
    fn wait(&self) -> io::Result<[PollFlags; 2]> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.is_heard && self.session.takes_more());
        flags.set(PollFlags::OUT, !self.unwritten.is_empty());
        let polled = [(self.session.fd(), self.session.interest(self.may_read())), (self.local.as_fd(), flags)];
        let mut fds: Vec<PollFd<'_>> = polled
            .iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags))
            .collect();
        wait_for(&mut fds)?;
        let mut events = fds.iter().map(PollFd::revents);
        Ok(polled.map(|(_, flags)| if flags.is_empty() { flags } else { events.next().unwrap_or(flags) }))
    }

    /// Reads and writes what is possible; true if the local side is gone.
    fn go_on(&mut self, [session, local]: [PollFlags; 2]) -> Result<bool, SessionError> {
        if !session.is_empty() {
            let may_read = self.may_read();
            self.session.go_on(may_read)?;
        }
        if !local.is_empty() && !self.unwritten.is_empty() {
            match self.local.write(&self.unwritten) {
                Ok(written) => drop(self.unwritten.drain(..written)),
                Err(error) if is_nothing(&error) => {}
                Err(_) => return Ok(true),
            }
        }
        if !local.is_empty() && self.is_heard && self.session.takes_more() {
            let mut chunk = [0; SESSION_READ_BYTES];
            match self.local.read(&mut chunk) {
                Ok(0) => {
                    self.is_heard = false;
                    self.session.end(self.data);
                }
                Ok(read) => self.session.data(self.data, chunk.get(..read).unwrap_or_default()),
                Err(error) if is_nothing(&error) => {}
                Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Half of the agent's limit for all clients on this machine.
const MAX_FORWARDED_CONNECTIONS: u64 = 64;
const MAX_FAULT_BYTES: usize = 4096;
/// Enough for two nested buffers.
const FORWARD_STACK_BYTES: usize = 128 * 1024;
