//! Decides which connection carries a request.
//!
//! A server limits the requests of a connection (kube-apiserver: 100), and a watch occupies one of them for hours. The
//! first connection carries everything that a small node needs. Tenants' requests may occupy three quarters of it, and
//! use further connections beyond that, so that the node's own requests never wait for a watch of a pod's object.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::ApiError;
use super::exchange::{Exchange, Link};
use super::request::Requester;
use super::transport::{ConnectionRole, Transport};
use crate::platform::rpc::Connector;
use crate::types::time::Backoff;

pub(super) struct Connections {
    transport: Rc<Transport>,
    first: Rc<Connector<Exchange>>,
    /// For requests of tenants only.
    further: RefCell<Vec<Rc<Connector<Exchange>>>>,
}

const FIRST_API_RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// With jitter 30 s, so that the lease (40 s) is renewed before a server that is back takes the node for lost.
const MAX_API_RECONNECT_DELAY: Duration = Duration::from_secs(20);
/// The longest delay in about the first two minutes, so that the client soon notices a server that is back.
const MAX_EARLY_BACKOFF: Duration = Duration::from_secs(1);
/// With jitter, attempts of [`MAX_EARLY_BACKOFF`] take about two minutes.
const EARLY_ATTEMPTS: u32 = 90;
/// Jitter, so that a fleet does not reconnect all at once.
const API_RECONNECT_JITTER: f64 = 0.5;
/// Enough for a thousand watches on a server that accepts 100 requests on a connection.
const MAX_FURTHER_API_CONNECTIONS: usize = 10;
/// Streams of a connection that are used at most, however many the server accepts.
const MAX_STREAMS_OF_CONNECTION: usize = 250;
/// Streams of a connection to kube-apiserver, until the server's limit is known.
const USUAL_STREAMS: usize = 100;

impl Connections {
    pub(super) fn new(transport: Rc<Transport>) -> Self {
        let first = connector(&transport);
        Self { transport, first, further: RefCell::default() }
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// A connection on which a request of `requester` can begin at once, if it does so before the next await.
    pub(super) async fn link(&self, requester: Requester) -> Result<Rc<Link>, ApiError> {
        loop {
            let link = self.connected(&self.first, ConnectionRole::First).await?;
            if requester == Requester::Node || has_room_for_tenants(&link, ConnectionRole::First) {
                return Ok(link);
            }
            let connector = self.further_connector()?;
            let link = self.connected(&connector, ConnectionRole::Further).await?;
            if has_room_for_tenants(&link, ConnectionRole::Further) {
                return Ok(link);
            }
            // Other requests have taken the new connection's streams.
        }
    }

    async fn connected(&self, connector: &Rc<Connector<Exchange>>, role: ConnectionRole) -> Result<Rc<Link>, ApiError> {
        connector.link(|attempt| self.transport.start(connector, attempt, role)).await
    }

    /// The first connection with room, else one that is not connected yet.
    fn further_connector(&self) -> Result<Rc<Connector<Exchange>>, ApiError> {
        let mut further = self.further.borrow_mut();
        let has_room = |connector: &&Rc<Connector<Exchange>>| {
            let link = connector.connected_link();
            link.is_some_and(|link| has_room_for_tenants(&link, ConnectionRole::Further))
        };
        let is_away = |connector: &&Rc<Connector<Exchange>>| connector.connected_link().is_none();
        if let Some(existing) = further.iter().find(has_room).or_else(|| further.iter().find(is_away)) {
            return Ok(Rc::clone(existing));
        }
        if further.len() >= MAX_FURTHER_API_CONNECTIONS {
            // Unlike a call of the runtime, a request does not wait for a stream: watches hold theirs for hours.
            return Err(ApiError::Unreachable("all streams to the API server are in use".into()));
        }
        let new = connector(&self.transport);
        further.push(Rc::clone(&new));
        Ok(new)
    }

    /// The number of tenants' requests that can be under way at a time.
    pub(super) fn max_tenant_streams(&self) -> usize {
        let first = self.first.connected_link();
        let usable = first.map_or(USUAL_STREAMS, |link| link.max_exchanges().min(MAX_STREAMS_OF_CONNECTION));
        max_of_tenants(usable, ConnectionRole::First)
            + MAX_FURTHER_API_CONNECTIONS * max_of_tenants(usable, ConnectionRole::Further)
    }

    /// Closes all connections.
    pub(super) fn close(&self, cause: &ApiError) {
        for link in self.all().iter().filter_map(|connector| connector.connected_link()) {
            link.end(cause.clone());
        }
    }

    /// Resets the back-off.
    pub(super) fn reset_backoff(&self) {
        for connector in self.all() {
            connector.renewed();
        }
    }

    fn all(&self) -> Vec<Rc<Connector<Exchange>>> {
        std::iter::once(&self.first).chain(&*self.further.borrow()).cloned().collect()
    }

    /// Waits until there is a connection, or until there is none.
    pub(super) async fn is_in_state(&self, is_connected: bool) {
        loop {
            let seen = self.first.changed.changes();
            if self.is_connected() == is_connected {
                return;
            }
            self.first.changed.beyond(seen).await;
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.first.connected_link().is_some()
    }

    /// Why there is no connection, if an attempt has failed.
    pub(super) fn failure(&self) -> Option<ApiError> {
        self.first.failure()
    }
}

fn connector(transport: &Transport) -> Rc<Connector<Exchange>> {
    let backoff = Backoff::new(FIRST_API_RECONNECT_DELAY, MAX_API_RECONNECT_DELAY);
    // Where bytes are counted, they are not spent on frequent attempts.
    let backoff = match transport.gate.budget() {
        None => backoff.with_early_limit(MAX_EARLY_BACKOFF, EARLY_ATTEMPTS),
        Some(_) => backoff,
    };
    Rc::new(Connector::new(backoff, API_RECONNECT_JITTER))
}

fn has_room_for_tenants(link: &Link, role: ConnectionRole) -> bool {
    let used = link.count(|exchange| exchange.requester == Requester::Tenant);
    used < max_of_tenants(link.max_exchanges().min(MAX_STREAMS_OF_CONNECTION), role)
}

/// How many of a connection's streams tenants may use.
fn max_of_tenants(streams: usize, role: ConnectionRole) -> usize {
    match role {
        ConnectionRole::First => streams - streams.div_ceil(4),
        ConnectionRole::Further => streams,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarter_of_the_first_connection_is_the_nodes_own() {
        for (streams, tenants) in [(0, 0), (1, 0), (2, 1), (4, 3), (100, 75), (250, 187)] {
            assert_eq!(max_of_tenants(streams, ConnectionRole::First), tenants, "{streams}");
            assert_eq!(max_of_tenants(streams, ConnectionRole::Further), streams);
        }
    }
}
