//! State shared by the threads, and how they wait.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::certificates::Authority;
use super::fairness::PriorityLevel;
use super::http2::Duplex;
use super::tls::Tls;
use super::world::{Network, World};

pub(crate) struct Shared {
    pub(super) world: Mutex<World>,
    /// Notified when the world changes.
    pub(super) changed: Condvar,
    pub(super) tls: Option<Tls>,
    sockets: Mutex<Vec<OpenSocket>>,
    duplexes: Mutex<Vec<Weak<Duplex>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The socket of an open connection.
struct OpenSocket {
    number: u64,
    tcp: TcpStream,
    /// Whether a thread always reads it and notices when the client closes it.
    is_read: bool,
}

impl Shared {
    pub(super) fn new(world: World, tls: Option<Tls>) -> Self {
        Self {
            world: Mutex::new(world),
            changed: Condvar::new(),
            tls,
            sockets: Mutex::default(),
            duplexes: Mutex::default(),
            threads: Mutex::default(),
        }
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&lock(&self.world))
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let changed = change(&mut lock(&self.world));
        self.changed.notify_all();
        changed
    }

    pub(super) fn authority(&self) -> Arc<Authority> {
        self.look(|world| Arc::clone(&world.authority))
    }

    /// Waits for a change of the world, with a timeout.
    pub(super) fn wait<'a>(&self, world: MutexGuard<'a, World>, longest: Duration) -> MutexGuard<'a, World> {
        self.changed.wait_timeout(world, longest).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until `done` holds, the test ends or the client disconnects. Returns whether `done` holds.
    fn wait_until(&self, token: u64, longest: Option<Duration>, done: impl Fn(&World) -> bool) -> bool {
        let end = longest.map(|longest| Instant::now() + longest);
        let mut world = lock(&self.world);
        loop {
            if world.ended || world.has_left(token) {
                return false;
            }
            if done(&world) {
                return true;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return true,
                Some(left) => world = self.wait(world, left),
                None => world = self.changed.wait(world).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Waits while the network is a black hole. Returns whether the client is still there; token 0 is no client.
    pub(super) fn pass(&self, token: u64) -> bool {
        self.wait_until(token, None, |world| world.network != Network::Blackhole)
    }

    pub(super) fn pause(&self, time: Duration, token: u64) {
        let _ = self.wait_until(token, Some(time), |_| false);
    }

    /// Waits this long, unless the client disconnects.
    pub(super) fn delay(self: &Arc<Self>, time: Duration, connection: u64, token: u64) {
        let _following = self.follow_client(connection, token);
        self.pause(time, token);
    }

    /// Waits for a seat; `None` if the queues are full, after the longest wait, or if the client disconnects.
    pub(super) fn seat(self: &Arc<Self>, level: PriorityLevel, connection: u64, token: u64) -> Option<Seat<'_>> {
        let (is_seated, longest) = self.change(|world| (world.seats(level).take(), world.options.longest_wait));
        if is_seated {
            return Some(Seat { shared: self, level });
        }
        if !self.change(|world| world.seats(level).queue()) {
            return None;
        }
        let _following = self.follow_client(connection, token);
        let end = Instant::now() + longest;
        let mut world = lock(&self.world);
        let is_seated = loop {
            if world.ended || world.has_left(token) {
                break false;
            }
            if world.seats(level).take() {
                break true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            world = self.wait(world, left);
        };
        world.seats(level).leave_queue();
        is_seated.then(|| Seat { shared: self, level })
    }

    /// Waits for `release`.
    pub(super) fn hold(self: &Arc<Self>, connection: u64, token: u64) {
        let _following = self.follow_client(connection, token);
        let before = self.change(|world| {
            world.held += 1;
            world.released
        });
        let _ = self.wait_until(token, None, |world| world.released > before);
        self.change(|world| world.held -= 1);
    }

    /// Waits for the client to disconnect.
    pub(super) fn hang(self: &Arc<Self>, connection: u64, token: u64) {
        let _following = self.follow_client(connection, token);
        let _ = self.wait_until(token, None, |_| false);
    }

    pub(super) fn is_over(&self) -> bool {
        self.look(|world| world.ended)
    }

    /// Notices when the client closes the connection or sends bytes, which an HTTP/1.1 client does only to close while
    /// it waits for a response. Must end before the whole response is sent.
    pub(super) fn follow_client(self: &Arc<Self>, connection: u64, token: u64) -> Following<'_> {
        let tcp = {
            let sockets = lock(&self.sockets);
            let found = sockets.iter().find(|socket| socket.number == connection && !socket.is_read);
            found.and_then(|socket| socket.tcp.try_clone().ok())
        };
        if let Some(tcp) = tcp {
            self.change(|world| world.followed.push(token));
            let shared = Arc::clone(self);
            self.spawn(move || {
                // Returns on any byte or on the end.
                let _ = tcp.peek(&mut [0]);
                shared.change(|world| {
                    if world.followed.contains(&token) {
                        world.left.push(token);
                    }
                });
            });
        }
        Following { shared: self, token }
    }

    pub(super) fn add_duplex(&self, number: u64, duplex: &Arc<Duplex>) {
        lock(&self.duplexes).push(Arc::downgrade(duplex));
        for socket in lock(&self.sockets).iter_mut().filter(|socket| socket.number == number) {
            socket.is_read = true;
        }
    }

    /// Sends GOAWAY on HTTP/2 connections.
    pub(super) fn go_away(&self) {
        let duplexes = std::mem::take(&mut *lock(&self.duplexes));
        duplexes.iter().filter_map(Weak::upgrade).for_each(|duplex| duplex.go_away());
    }

    pub(super) fn add_socket(&self, number: u64, tcp: &TcpStream) {
        if let Ok(tcp) = tcp.try_clone() {
            lock(&self.sockets).push(OpenSocket { number, tcp, is_read: false });
        }
    }

    pub(super) fn remove_socket(&self, number: u64) {
        lock(&self.sockets).retain(|socket| socket.number != number);
    }

    pub(super) fn cut_sockets(&self) {
        for socket in lock(&self.sockets).iter() {
            // The connection may already be closed.
            let _ = socket.tcp.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn spawn(&self, run: impl FnOnce() + Send + 'static) {
        let mut threads = lock(&self.threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread::spawn(run));
    }

    /// Waits for every thread to end.
    pub(super) fn join(&self) {
        loop {
            let threads = std::mem::take(&mut *lock(&self.threads));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // A panicked thread has already printed its message.
                let _ = thread.join();
            }
        }
    }
}

/// The right to execute a request, until dropped.
pub(super) struct Seat<'a> {
    shared: &'a Shared,
    level: PriorityLevel,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.shared.change(|world| world.seats(self.level).give_back());
    }
}

/// Follows the client until dropped.
pub(super) struct Following<'a> {
    shared: &'a Shared,
    token: u64,
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.shared.change(|world| world.followed.retain(|token| *token != self.token));
    }
}

/// Locks even a poisoned mutex, so that one failed test does not fail twice.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
