//! The streams of a server: how many may be open, of all clients and of each. Pure.
//!
//! A stream lasts as long as its client wants. Without a limit of their own, streams would take every connection of the
//! server and lock out all other requests.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A stream whose reader takes nothing for this long ends.
pub(super) const UNREAD_STREAM_TIMEOUT: Duration = Duration::from_secs(3600);

/// The streams that are open on one server.
#[derive(Debug)]
pub(super) struct StreamSlots {
    limit: usize,
    most_of_one: usize,
    /// The client of each open stream.
    open: RefCell<Vec<Rc<str>>>,
}

/// An open stream. Dropping it ends the stream's claim.
#[derive(Debug)]
pub(super) struct StreamSlot {
    slots: Rc<StreamSlots>,
    client: Rc<str>,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooManyStreams {
    OfAll,
    OfClient,
}

impl StreamSlots {
    pub(super) fn new(limit: usize, most_of_one: usize) -> Rc<Self> {
        Rc::new(Self { limit, most_of_one, open: RefCell::default() })
    }

    pub(super) fn take(self: &Rc<Self>, client: &str) -> Result<StreamSlot, TooManyStreams> {
        let mut open = self.open.borrow_mut();
        let of_client = open.iter().filter(|other| &***other == client).count();
        // The last ones are left to clients that have none: few, as each takes one of them, so an eighth is enough.
        let limit = if of_client == 0 { self.limit } else { self.limit - self.limit / 8 };
        if open.len() >= limit {
            return Err(TooManyStreams::OfAll);
        }
        if of_client >= self.most_of_one {
            return Err(TooManyStreams::OfClient);
        }
        let client: Rc<str> = client.into();
        open.push(Rc::clone(&client));
        Ok(StreamSlot { slots: Rc::clone(self), client })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open.borrow_mut();
        let index = open.iter().position(|client| *client == self.client);
        index.map(|index| open.swap_remove(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_streams_are_for_clients_that_have_none() {
        let slots = StreamSlots::new(16, 12);
        let _greedy: Vec<_> = (0..14).map_while(|number| slots.take(if number < 8 { "a" } else { "b" }).ok()).collect();
        assert_eq!(slots.open.borrow().len(), 14);
        assert_eq!(slots.take("a").unwrap_err(), TooManyStreams::OfAll);
        assert!(slots.take("c").is_ok());
    }

    #[test]
    fn client_and_server_have_limits_and_ended_streams_make_room() {
        let slots = StreamSlots::new(3, 2);
        let first = slots.take("a").unwrap();
        let second = slots.take("a").unwrap();
        assert_eq!(slots.take("a").unwrap_err(), TooManyStreams::OfClient);
        let third = slots.take("b").unwrap();
        assert_eq!(slots.take("c").unwrap_err(), TooManyStreams::OfAll);
        drop(first);
        let fourth = slots.take("a").unwrap();
        drop((second, third, fourth));
        assert_eq!(slots.open.borrow().len(), 0);
    }
}
