//! The simulated network: in-memory connections that carry real bytes, with delay, partition and loss.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::future::Future as _;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::blocking::PoolKind;
use super::timers::Timer;
use super::virtual_time::{World, world};
use super::{AsyncRead, AsyncWrite, SemaphoreGuardArc};

/// The hosts by address: a path, or `IP:PORT`.
#[derive(Default)]
pub(crate) struct Network {
    hosts: RefCell<Vec<Rc<Host>>>,
    names: RefCell<Vec<(String, IpAddr)>>,
    pub(crate) resolver: Cell<Resolver>,
}

/// The behaviour of the simulated name server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resolver {
    /// Longest duration of a lookup, which occupies a thread of the slow pool.
    pub(crate) slow: Duration,
    /// Share of failing lookups, in parts per thousand.
    pub(crate) failing: u32,
}

/// An address, and the link to it.
pub(crate) struct Host {
    address: String,
    listener: RefCell<Option<async_channel::Sender<Pipe>>>,
    line: Cell<Line>,
    /// Longest delay of bytes in transit.
    pub(crate) delay: Cell<Duration>,
    ends: RefCell<Vec<Weak<End>>>,
    bytes: Cell<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Up,
    /// Bytes are dropped silently.
    BlackHole,
}

impl Network {
    /// The host at the address, whether it listens or not.
    pub(crate) fn host(&self, address: &str) -> Rc<Host> {
        let mut hosts = self.hosts.borrow_mut();
        if let Some(host) = hosts.iter().find(|host| host.address == address) {
            return Rc::clone(host);
        }
        let host = Rc::new(Host {
            address: address.to_owned(),
            listener: RefCell::default(),
            line: Cell::new(Line::Up),
            delay: Cell::new(Duration::from_micros(200)),
            ends: RefCell::default(),
            bytes: Cell::default(),
        });
        hosts.push(Rc::clone(&host));
        host
    }

    pub(crate) fn add_name(&self, name: &str, address: IpAddr) {
        self.names.borrow_mut().push((name.to_owned(), address));
    }

    /// Bytes sent to and from the address since the simulation began.
    pub(crate) fn bytes(&self, address: &str) -> u64 {
        self.host(address).bytes.get()
    }

    /// Connects to `address`.
    pub(super) async fn connect(&self, address: &str) -> io::Result<Pipe> {
        let host = self.host(address);
        let world = world().ok_or(io::ErrorKind::Unsupported)?;
        super::sleep(world.duration_below(host.delay.get())).await;
        if host.line.get() == Line::BlackHole {
            return std::future::pending().await;
        }
        let Some(listener) = host.listener.borrow().clone() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let (client_end, server_end) = Pipe::pair(&host);
        listener.try_send(server_end).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(client_end)
    }
}

/// Resolves `name` for `owner` as the simulated name server does. The lookup holds `permit` until it is done, even if its
/// caller is gone.
pub(crate) async fn simulated_lookup(
    world: Rc<World>,
    name: &str,
    owner: Option<Arc<str>>,
    permit: SemaphoreGuardArc,
) -> Vec<IpAddr> {
    let Resolver { slow, failing } = world.network.resolver.get();
    let (sender, receiver) = async_channel::bounded(1);
    let response = Box::new(move || {
        drop(permit);
        // The caller may be gone.
        let _ = sender.try_send(());
    });
    let pool = if owner.is_some() { PoolKind::Inquiry } else { PoolKind::Slow };
    super::virtual_time::work_for(&world, pool, owner, world.duration_below(slow), response);
    // The job was lost with its program.
    if receiver.recv().await.is_err() {
        return std::future::pending().await;
    }
    if world.chance(failing) {
        return Vec::new();
    }
    let names = world.network.names.borrow();
    names.iter().filter(|(host_name, _)| host_name == name).map(|(_, address)| *address).collect()
}

impl Host {
    /// Accepts connections until the next call or [`Host::close`].
    pub(crate) fn listen(&self) -> async_channel::Receiver<Pipe> {
        let (sender, receiver) = async_channel::unbounded();
        self.listener.replace(Some(sender));
        receiver
    }

    /// Stops listening and resets every connection.
    pub(crate) fn close(&self) {
        self.listener.replace(None);
        self.cut();
    }

    /// Resets every connection.
    pub(crate) fn cut(&self) {
        for end in self.ends.take().iter().filter_map(Weak::upgrade) {
            end.incoming.reset();
            end.outgoing.reset();
        }
    }

    pub(crate) fn set_line(&self, line: Line) {
        self.line.set(line);
        if line == Line::Up {
            for end in self.ends.borrow().iter().filter_map(Weak::upgrade) {
                end.incoming.wake();
                end.outgoing.wake();
            }
        }
    }
}

/// One end of a connection. Clones share it, and dropping the last one closes it.
#[derive(Clone)]
pub struct Pipe(Rc<End>);

struct End {
    host: Rc<Host>,
    incoming: Rc<Direction>,
    outgoing: Rc<Direction>,
    /// For socket options, which all fail.
    descriptor: File,
}

#[derive(Default)]
struct Direction {
    chunks: RefCell<VecDeque<Chunk>>,
    state: Cell<State>,
    timer: RefCell<Option<Timer>>,
    wakers: RefCell<Vec<Waker>>,
}

struct Chunk {
    arrives: Instant,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Closed,
    Reset,
}

/// The size of a socket's buffers.
const SIMULATED_SOCKET_BUFFER_BYTES: usize = 128 * 1024;

impl Pipe {
    fn pair(host: &Rc<Host>) -> (Self, Self) {
        let directions: [Rc<Direction>; 2] = Default::default();
        let [there, back] = directions;
        let end = |incoming: &Rc<Direction>, outgoing: &Rc<Direction>| {
            let descriptor = File::open("/dev/null").unwrap();
            let (incoming, outgoing) = (Rc::clone(incoming), Rc::clone(outgoing));
            Rc::new(End { host: Rc::clone(host), incoming, outgoing, descriptor })
        };
        let (near_end, far_end) = (end(&back, &there), end(&there, &back));
        let mut ends = host.ends.borrow_mut();
        ends.retain(|end| end.strong_count() > 0);
        ends.extend([Rc::downgrade(&near_end), Rc::downgrade(&far_end)]);
        (Self(near_end), Self(far_end))
    }
}

impl Direction {
    fn wake(&self) {
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    fn wait(&self, context: &Context<'_>) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
    }

    fn reset(&self) {
        self.state.set(State::Reset);
        self.chunks.take();
        self.wake();
    }

    /// Closes the direction: its writer was dropped or shut down.
    fn close(&self) {
        if self.state.get() == State::Open {
            self.state.set(State::Closed);
        }
        self.wake();
    }

    fn queued(&self) -> usize {
        self.chunks.borrow().iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// The first bytes that have arrived; sometimes only a part of them, as with sockets.
    fn take(&self, world: &World, out: &mut [u8]) -> Option<usize> {
        let mut chunks = self.chunks.borrow_mut();
        let first = chunks.front_mut()?;
        let most = first.bytes.len().min(out.len());
        let len = if most > 1 && world.chance(20) { 1 + usize::try_from(world.below(most as u64)).ok()? } else { most };
        let len = len.min(most);
        out[..len].copy_from_slice(&first.bytes[..len]);
        first.bytes.drain(..len);
        if first.bytes.is_empty() {
            chunks.pop_front();
        }
        Some(len)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.outgoing.close();
        // A writer to an end that is gone gets an error.
        if self.incoming.state.get() == State::Open {
            self.incoming.state.set(State::Reset);
        }
        self.incoming.wake();
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        let world = world().ok_or(io::ErrorKind::Unsupported)?;
        let End { host, incoming, .. } = &*self.0;
        if incoming.state.get() == State::Reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        incoming.wait(context);
        if host.line.get() == Line::BlackHole {
            return Poll::Pending;
        }
        let arrives = incoming.chunks.borrow().front().map(|chunk| chunk.arrives);
        match arrives {
            Some(time) if time > world.now() => {
                let mut timer = incoming.timer.borrow_mut();
                let timer = timer.insert(Timer::at(time));
                Pin::new(timer).poll(context).map(|()| unreachable!("its moment is to come"))
            }
            Some(_) => {
                let len = incoming.take(&world, out).unwrap_or_default();
                // The other end may be waiting for room.
                incoming.wake();
                Poll::Ready(Ok(len))
            }
            None if incoming.state.get() == State::Closed => Poll::Ready(Ok(0)),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let world = world().ok_or(io::ErrorKind::Unsupported)?;
        let End { host, outgoing, .. } = &*self.0;
        match outgoing.state.get() {
            State::Open => {}
            State::Closed => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            State::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        let room = SIMULATED_SOCKET_BUFFER_BYTES.saturating_sub(outgoing.queued());
        if room == 0 {
            outgoing.wait(context);
            return Poll::Pending;
        }
        let len = room.min(bytes.len());
        let last = outgoing.chunks.borrow().back().map_or(world.now(), |chunk| chunk.arrives);
        let arrives = last.max(world.now() + world.duration_below(host.delay.get()));
        outgoing.chunks.borrow_mut().push_back(Chunk { arrives, bytes: bytes[..len].to_vec() });
        host.bytes.set(host.bytes.get() + len as u64);
        outgoing.wake();
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.outgoing.close();
        Poll::Ready(Ok(()))
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipe({})", self.0.host.address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AsyncReadExt as _, AsyncWriteExt as _, UnixStream, deadline, simulate, spawn};
    use super::*;

    /// What a host that echoes everything returns for `bytes`.
    async fn echoed(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect("/echo").await?;
        stream.write_all(bytes).await?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).await?;
        Ok(back)
    }

    fn serve(host: &Host) -> super::super::Task<()> {
        let connections = host.listen();
        spawn(async move {
            let mut open = Vec::new();
            while let Ok(mut pipe) = connections.recv().await {
                open.push(spawn(async move {
                    let mut buffer = [0; 100];
                    while let Ok(len @ 1..) = pipe.read(&mut buffer).await {
                        if pipe.write_all(&buffer[..len]).await.is_err() {
                            return;
                        }
                    }
                }));
            }
        })
    }

    #[test]
    fn bytes_arrive_in_order() {
        for seed in 0..20 {
            let echoed = simulate(seed, |world| async move {
                let host = world.network.host("/echo");
                host.delay.set(Duration::from_millis(50));
                let _serving = serve(&host);
                let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
                let reader = UnixStream::connect("/echo").await.unwrap();
                let writer = spawn({
                    let (mut writer, bytes) = (reader.clone(), bytes.clone());
                    async move { writer.write_all(&bytes).await.unwrap() }
                });
                let (mut reader, mut back) = (reader, vec![0; bytes.len()]);
                reader.read_exact(&mut back).await.unwrap();
                writer.await;
                back == bytes
            });
            assert_eq!(echoed, Ok(true), "seed {seed}");
        }
    }

    #[test]
    fn missing_listeners_refuse_and_cut_connections_reset() {
        let kinds = simulate(3, |world| async move {
            let host = world.network.host("/echo");
            let refused = echoed(b"x").await.unwrap_err().kind();
            let _serving = serve(&host);
            let mut stream = UnixStream::connect("/echo").await.unwrap();
            host.cut();
            let cut = stream.read(&mut [0]).await.unwrap_err().kind();
            (refused, cut, echoed(b"again").await.unwrap())
        });
        let (refused, cut, again) = kinds.unwrap();
        assert_eq!((refused, cut), (io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset));
        assert_eq!(again, b"again");
    }

    #[test]
    fn black_hole_is_silent_until_it_ends() {
        let back = simulate(4, |world| async move {
            let host = world.network.host("/echo");
            let _serving = serve(&host);
            let mut stream = UnixStream::connect("/echo").await.unwrap();
            host.set_line(Line::BlackHole);
            stream.write_all(b"ping").await.unwrap();
            let mut back = [0; 4];
            assert!(deadline(Duration::from_secs(3600), stream.read_exact(&mut back)).await.is_err());
            host.set_line(Line::Up);
            stream.read_exact(&mut back).await.unwrap();
            back
        });
        assert_eq!(back, Ok(*b"ping"));
    }

    #[test]
    fn dropping_an_end_is_eof_for_its_peer() {
        let read = simulate(5, |world| async move {
            let connections = world.network.host("/one").listen();
            let mut stream = UnixStream::connect("/one").await.unwrap();
            let mut peer = connections.recv().await.unwrap();
            peer.write_all(b"bye").await.unwrap();
            drop(peer);
            let mut text = Vec::new();
            stream.read_to_end(&mut text).await.map(|_| text).ok()
        });
        assert_eq!(read, Ok(Some(b"bye".to_vec())));
    }
}
