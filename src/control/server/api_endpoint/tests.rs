//! Clients whose tokens the API server has accepted, and others.

use std::path::PathBuf;

use super::*;
use crate::control::server::http::Status;
use crate::kubelet::offline::{KeyPlaces, OfflineStore};
use crate::platform::apiserver::{Gate, Opening, Rank};
use crate::platform::net::Dialer;
use crate::platform::rt::{TestFolder, block_on};
use crate::protocol::http1::Request;

pub(super) fn endpoint_without_server(cache: ApiCache, own_node: Rc<dyn OwnNodeSource>) -> ApiEndpoint {
    let node = Client::behind(Gate::new(Opening::Open(Rank::Event), None), PathBuf::from("/none"), Dialer::new());
    ApiEndpoint {
        address: "127.0.0.1:1".parse().unwrap(),
        certificate: Default::default(),
        tls: Default::default(),
        upstream: node.for_others(Dialer::new()),
        node,
        cache,
        own_node,
        status_inputs: Rc::default(),
    }
}

struct NoPods;

impl OwnNodeSource for NoPods {
    fn own_node(&self) -> OwnNode {
        OwnNode::default()
    }
}

/// An endpoint that clients with these addresses ask.
struct Door(Rc<Served>);

impl Door {
    async fn new(folder: &TestFolder) -> Self {
        let keys = KeyPlaces { credentials: None, file: None, plain: false };
        let cache = ApiCache::new(OfflineStore::open(folder.0.join("store"), keys).await, &[], &[]);
        Self(Rc::new(Served::new(endpoint_without_server(cache, Rc::new(NoPods)), None)))
    }

    /// A new connection's first request: what its body may have, or the refusal; and whose requests are counted.
    fn ask(&self, address: &str, token: &str, body: u64) -> (Result<Option<u64>, Status>, ClientState, String) {
        let state = Rc::<Cell<ClientState>>::default();
        let visit = Visit::new(Rc::clone(&self.0), address.parse().unwrap(), Rc::clone(&state));
        let head = format!("POST /a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n");
        let text = format!("{head}Content-Length: {body}\r\n\r\n");
        let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        let admitted = visit.check(&request, true).map_err(|response| response.status);
        (admitted, state.get(), visit.client())
    }
}

#[test]
fn unknown_token_stays_a_strangers_until_the_server_has_accepted_it() {
    block_on(async {
        let door = Door::new(&TestFolder::new("endpoint-strangers")).await;
        let (first, second) = (door.ask("10.0.0.1", "a", 0), door.ask("10.0.0.1", "b", 0));
        assert_eq!(first, (Ok(Some(16 * 1024)), ClientState::Stranger, "10.0.0.1".to_owned()));
        assert_eq!(first, second, "another token of the same address");
        for status in [401, 429, 502] {
            assert!(!door.0.answered(door.0.tokens.key("a"), status));
        }
        assert_eq!(door.ask("10.0.0.1", "a", 0), first);
        assert!(door.0.answered(door.0.tokens.key("a"), 403));
        let (admitted, state, client) = door.ask("10.0.0.1", "a", 100_000);
        assert_eq!((admitted, state), (Ok(Some(256 * 1024)), ClientState::Busy));
        assert_ne!(client, door.ask("10.0.0.1", "b", 0).2);
    });
}

#[test]
fn requests_with_unknown_tokens_are_limited_for_each_address() {
    block_on(async {
        let door = Door::new(&TestFolder::new("endpoint-buckets")).await;
        for number in 0..8 {
            assert!(door.ask("10.0.0.1", &format!("t{number}"), 2048).0.is_ok(), "{number}");
        }
        assert_eq!(door.ask("10.0.0.1", "t8", 0).0, Err(Status::TooManyRequests));
        assert!(door.ask("10.0.0.2", "t8", 0).0.is_ok());
        door.0.tokens.add(door.0.tokens.key("known"));
        assert!(door.ask("10.0.0.1", "known", 0).0.is_ok());
    });
}
