//! Decides which connections of a server run, wait or end, so that no peer takes all of them. Pure.
//!
//! Peers are known once one of their connections was authenticated, and strangers' connections are unauthenticated
//! ones. Known and unknown peers have strangers' connections of their own each, so that many unknown addresses cannot
//! keep the API server out.

use std::net::IpAddr;
use std::time::Duration;

/// The client's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Address(IpAddr),
    /// A process of this machine. 0 if its id is unknown.
    Process(i32),
}

/// What is known about the client of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientState {
    #[default]
    Stranger,
    /// Authenticated, with no request in progress.
    Idle,
    Busy,
}

/// An open connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSummary {
    pub(super) peer: Peer,
    pub(super) state: ClientState,
    pub(super) age: Duration,
}

/// The connections of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// All connections.
    pub(super) most: usize,
    /// Unauthenticated ones among them.
    pub(super) most_strangers: usize,
    /// Those of one peer.
    pub(super) most_of_one: usize,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// The open connection at this index ends.
    Displaces(usize),
    /// It waits for an earlier connection of its kind.
    Later,
    /// It is closed.
    Never,
}

/// How long a new unauthenticated connection is safe from being displaced by its peer's or those of peers with as many.
pub(super) const NEW_CONNECTION_GRACE: Duration = Duration::from_secs(2);

impl ConnectionLimits {
    /// The room for a connection of `peer`.
    pub(super) fn room(&self, open: &[ConnectionSummary], peer: Peer, is_known: impl Fn(Peer) -> bool) -> Room {
        let of_this_peer = open.iter().filter(|connection| connection.peer == peer).count();
        if of_this_peer >= self.most_of_one {
            return connection_to_close(open, |connection| connection.peer == peer)
                .map_or(Room::Never, Room::Displaces);
        }
        // The last ones are left to peers that have none.
        let most = if of_this_peer == 0 { self.most } else { self.most - self.most / 16 };
        if open.len() >= most {
            return connection_to_close(open, |_| true).map_or(Room::Never, Room::Displaces);
        }
        self.room_of_stranger(open, peer, is_known)
    }

    /// Every connection begins as a stranger's.
    fn room_of_stranger(&self, open: &[ConnectionSummary], peer: Peer, is_known: impl Fn(Peer) -> bool) -> Room {
        let of_known = is_known(peer);
        let is_stranger = |connection: &ConnectionSummary| connection.state == ClientState::Stranger;
        let is_own = |connection: &ConnectionSummary| is_stranger(connection) && connection.peer == peer;
        let is_alike =
            |connection: &ConnectionSummary| is_stranger(connection) && is_known(connection.peer) == of_known;
        let count =
            |counted: &dyn Fn(&ConnectionSummary) -> bool| open.iter().filter(|connection| counted(connection)).count();
        let of_kind = self.most_strangers - self.most_strangers / 4;
        let of_one = if of_known { of_kind } else { self.most_strangers / 2 };

        let of_this_peer = count(&is_own);
        let old_enough =
            |index: usize| open.get(index).is_some_and(|connection| connection.age >= NEW_CONNECTION_GRACE);
        if of_this_peer >= of_one {
            return oldest(open, is_own).filter(|index| old_enough(*index)).map_or(Room::Later, Room::Displaces);
        }
        if count(&is_alike) < of_kind && count(&is_stranger) < self.most_strangers {
            return Room::Free;
        }
        // The peer with the most of them gives way, at once if it has more than this one gets.
        let most = open
            .iter()
            .filter(|connection| is_alike(connection))
            .map(|connection| count(&|other| is_stranger(other) && other.peer == connection.peer));
        let most = most.max().unwrap_or(0);
        let gives_way = |connection: &ConnectionSummary| {
            is_alike(connection) && count(&|other| is_stranger(other) && other.peer == connection.peer) == most
        };
        let index = oldest(open, gives_way).filter(|index| most > of_this_peer + 1 || old_enough(*index));
        index.map_or(Room::Later, Room::Displaces)
    }
}

/// The connection that ends for another one: the oldest unauthenticated one, or else the oldest idle one, of the peer
/// with the most connections among those that `may_end`.
fn connection_to_close(open: &[ConnectionSummary], may_end: impl Fn(&ConnectionSummary) -> bool) -> Option<usize> {
    let of_state = |state| {
        let may_end = |connection: &ConnectionSummary| connection.state == state && may_end(connection);
        let of_peer = |peer| open.iter().filter(|other| other.peer == peer).count();
        let most =
            open.iter().filter(|connection| may_end(connection)).map(|connection| of_peer(connection.peer)).max()?;
        oldest(open, |connection| may_end(connection) && of_peer(connection.peer) == most)
    };
    of_state(ClientState::Stranger).or_else(|| of_state(ClientState::Idle))
}

fn oldest(open: &[ConnectionSummary], counts: impl Fn(&ConnectionSummary) -> bool) -> Option<usize> {
    let counted = open.iter().enumerate().filter(|(_, connection)| counts(connection));
    // The first of those with the same age.
    counted.rev().max_by_key(|(_, connection)| connection.age).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { most: 32, most_strangers: 16, most_of_one: 24 };

    fn address(number: u8) -> Peer {
        Peer::Address(IpAddr::from([10, 0, 0, number]))
    }

    fn some(count: usize, peer: u8, state: ClientState, seconds: u64) -> Vec<ConnectionSummary> {
        vec![ConnectionSummary { peer: address(peer), state, age: Duration::from_secs(seconds) }; count]
    }

    fn strangers(count: usize, peer: u8, seconds: u64) -> Vec<ConnectionSummary> {
        some(count, peer, ClientState::Stranger, seconds)
    }

    /// Peers from 100 on are known.
    #[track_caller]
    fn check(open: &[Vec<ConnectionSummary>], peer: u8, room: Room) {
        let is_known = |peer| (100..=255).any(|number| peer == address(number));
        assert_eq!(LIMITS.room(&open.concat(), address(peer), is_known), room);
    }

    #[test]
    fn unknown_peer_has_half_of_the_strangers_and_waits_for_its_own() {
        check(&[strangers(7, 1, 0)], 1, Room::Free);
        check(&[strangers(8, 1, 1)], 1, Room::Later);
        check(&[strangers(1, 2, 9), strangers(8, 1, 2)], 1, Room::Displaces(1));
        check(&[strangers(8, 1, 0)], 2, Room::Free);
    }

    #[test]
    fn peer_with_the_most_strangers_gives_way_at_once() {
        let full = [strangers(4, 1, 0), strangers(8, 2, 0)];
        check(&full, 3, Room::Displaces(4));
        // One more than its own would only change places.
        check(&[strangers(4, 1, 0), strangers(4, 2, 0), strangers(4, 3, 0)], 3, Room::Later);
        check(&[strangers(4, 1, 1), strangers(4, 2, 3), strangers(4, 3, 0)], 3, Room::Displaces(4));
    }

    #[test]
    fn unknown_peers_leave_room_to_known_ones() {
        let unknown: Vec<_> = (1..=12).map(|peer| strangers(1, peer, 0)).collect();
        check(&unknown, 50, Room::Later);
        check(&unknown, 100, Room::Free);
        let with_known = [unknown.concat(), strangers(4, 100, 0)];
        check(&with_known, 100, Room::Later);
        check(&with_known, 101, Room::Displaces(12));
        // Known ones leave room to unknown ones, too.
        check(&[strangers(12, 100, 0)], 100, Room::Later);
        check(&[strangers(12, 100, 0)], 1, Room::Free);
    }

    #[test]
    fn last_connections_are_for_peers_that_have_none() {
        let busy = [some(20, 100, ClientState::Busy, 0), some(10, 101, ClientState::Busy, 0)];
        check(&busy, 101, Room::Never);
        check(&busy, 102, Room::Free);
        check(&busy, 1, Room::Free);
    }

    #[test]
    fn peer_with_too_many_connections_displaces_its_own() {
        let (idle, busy) = (ClientState::Idle, ClientState::Busy);
        check(&[some(1, 2, idle, 99), some(23, 1, busy, 9), some(1, 1, idle, 0)], 1, Room::Displaces(24));
        check(&[some(1, 2, idle, 99), some(24, 1, busy, 9)], 1, Room::Never);
    }

    #[test]
    fn full_server_ends_strangers_then_idle_connections_of_the_largest_peer() {
        let (idle, busy) = (ClientState::Idle, ClientState::Busy);
        check(&[some(8, 1, idle, 99), some(23, 2, idle, 0), strangers(1, 3, 0)], 4, Room::Displaces(31));
        check(&[some(8, 1, idle, 99), some(24, 2, idle, 0)], 4, Room::Displaces(8));
        check(&[some(8, 1, busy, 99), some(24, 2, busy, 0)], 4, Room::Never);
    }
}
