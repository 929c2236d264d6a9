//! Responses that wait for their readers. A whole page stays in memory until its reader has taken it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::platform::rpc::Signal;
use crate::platform::rt;

/// Memory of all responses of a server that wait for their readers. The last one may exceed it.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// Smaller responses are bounded by the number of connections.
pub(super) const SMALL_RESPONSE_BYTES: usize = 16 * 1024;
/// A reader that takes longer makes room for other requests when there is none.
const SLOW_READER_TIME: Duration = Duration::from_secs(10);
/// Only while the memory is full and a request waits: too rare for a list of those that wait.
const UNREAD_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The responses of one server.
#[derive(Debug, Default)]
pub(super) struct UnreadResponses {
    open: RefCell<Vec<Rc<Unread>>>,
}

#[derive(Debug)]
struct Unread {
    bytes: Cell<usize>,
    since: Instant,
    displaced: Signal,
}

/// A response that is being written. Dropping it releases its bytes.
#[derive(Debug)]
pub(super) struct UnreadResponse {
    slots: Rc<UnreadResponses>,
    unread: Rc<Unread>,
}

impl UnreadResponses {
    /// Waits until another page may be made.
    pub(super) async fn room(&self) {
        while !self.make_room() {
            rt::sleep(UNREAD_POLL_INTERVAL).await;
        }
    }

    /// Counts a response of this size. `None` if others fill the memory.
    pub(super) fn claim(self: &Rc<Self>, bytes: usize) -> Option<UnreadResponse> {
        if bytes > SMALL_RESPONSE_BYTES && !self.make_room() {
            return None;
        }
        let unread = Rc::new(Unread { bytes: Cell::new(bytes), since: rt::now(), displaced: Signal::default() });
        if bytes > SMALL_RESPONSE_BYTES {
            self.open.borrow_mut().push(Rc::clone(&unread));
        }
        Some(UnreadResponse { slots: Rc::clone(self), unread })
    }

    /// Displaces slow readers, the slowest first, until there is room. Whether there is.
    fn make_room(&self) -> bool {
        let mut open = self.open.borrow_mut();
        while open.iter().map(|unread| unread.bytes.get()).sum::<usize>() >= MAX_UNREAD_BYTES {
            // The oldest is first.
            match open.first() {
                Some(oldest) if rt::elapsed(oldest.since) >= SLOW_READER_TIME => open.remove(0).displaced.notify(),
                _ => return false,
            }
        }
        true
    }
}

impl UnreadResponse {
    /// The response is smaller than before.
    pub(super) fn shrink(&self, bytes: usize) {
        self.unread.bytes.set(bytes);
    }

    /// Returns when the response has to make room for another one.
    pub(super) async fn displaced(&self) {
        self.unread.displaced.beyond(0).await;
    }
}

impl Drop for UnreadResponse {
    fn drop(&mut self) {
        self.slots.open.borrow_mut().retain(|unread| !Rc::ptr_eq(unread, &self.unread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_wait_for_room_and_slow_readers_make_room() {
        let told = rt::simulate(1, |world| async move {
            let all = Rc::new(UnreadResponses::default());
            let small: Vec<_> = (0..1000).map(|_| all.claim(SMALL_RESPONSE_BYTES).unwrap()).collect();
            let first = all.claim(MAX_UNREAD_BYTES - 1).unwrap();
            let second = all.claim(SMALL_RESPONSE_BYTES + 1).unwrap();
            assert!(all.claim(SMALL_RESPONSE_BYTES + 1).is_none() && all.claim(1).is_some());
            let begun = world.passed();
            all.room().await;
            assert!(world.passed() - begun >= SLOW_READER_TIME);
            first.displaced().await;
            assert!(rt::deadline(Duration::from_secs(1), second.displaced()).await.is_err());
            drop((first, second, small));
            let large = all.claim(10 * MAX_UNREAD_BYTES).unwrap();
            assert!(all.claim(SMALL_RESPONSE_BYTES + 1).is_none());
            drop(large);
            assert!(all.open.borrow().is_empty());
        });
        assert_eq!(told, Ok(()));
    }
}
