//! The server without its network and its threads, for who has a network of its own.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::certificates::Authority;
use super::deletion::DeleteOptions;
use super::handle::{self, Reply};
use super::http::Message;
use super::identity::Identity;
use super::patch::PatchType;
use super::resources::Target;
use super::store::Store;
use super::verbs::Caller;
use super::watch::Watch;
use super::world::World;
use super::{Options, service_accounts};

pub(crate) struct Server {
    world: World,
}

/// A watch, and how far it has told what happens.
pub(crate) struct Following {
    watch: Box<Watch>,
    cursor: u64,
}

/// What comes next on a watch.
pub(crate) enum Lines {
    GoOn(Vec<Vec<u8>>),
    /// The last line.
    End(Vec<u8>),
}

impl Server {
    /// Every clock and every name goes by these two.
    pub(crate) fn new(clock: fn() -> Timestamp, seed: u64) -> Self {
        // Nobody shakes hands with it.
        static AUTHORITY: OnceLock<Arc<Authority>> = OnceLock::new();
        let authority = AUTHORITY.get_or_init(|| Arc::new(Authority::new(Timestamp::now())));
        let options = Options { tls: false, clock, seed: Some(seed), ..Options::default() };
        let mut server = Self { world: World::new(options, Arc::clone(authority)) };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }));
        }
        service_accounts::add_own_service(&mut server.world);
        server
    }

    pub(crate) fn answer(&mut self, message: &Message, identity: Identity) -> Reply {
        let reply = handle::decide(&mut self.world, message, identity);
        self.world.requests.clear();
        self.world.watches.clear();
        reply
    }

    /// The watch from its beginning: the lines that it begins with, and what follows.
    pub(crate) fn follow(watch: Box<Watch>) -> (Vec<Vec<u8>>, Following) {
        let cursor = watch.from();
        (watch.first_lines(), Following { watch, cursor })
    }

    pub(crate) fn version(&self) -> u64 {
        self.world.store.version()
    }

    pub(crate) fn lines(&self, following: &mut Following) -> Lines {
        match following.watch.lines_since(&self.world, &mut following.cursor) {
            Ok(lines) => Lines::GoOn(lines),
            Err(last) => Lines::End(last),
        }
    }

    /// Creates an object that says what it is.
    #[track_caller]
    pub(crate) fn create(&mut self, object: &Value) -> Value {
        let target = Target::of_object(object).expect("something that is served");
        let mut object = object.clone();
        if target.resource.namespaced {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        done(self.world.create(&Caller::test(), &target.named(""), object)).object
    }

    /// Merges a JSON merge patch into what is at a path.
    #[track_caller]
    pub(crate) fn patch(&mut self, path: &str, patch: &Value) -> Value {
        done(self.world.patch(&Caller::test(), &target(path), PatchType::Merge, patch)).object
    }

    /// Deletes as `kubectl delete` does; with no grace the object is gone at once.
    #[track_caller]
    pub(crate) fn delete(&mut self, path: &str, grace: Option<i64>) {
        let options = DeleteOptions { grace, ..DeleteOptions::default() };
        done(self.world.delete(&Caller::test(), &target(path), &options));
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.world.get(path).map(|object| Value::clone(&object))
    }

    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.world.list(path).iter().map(|object| Value::clone(object)).collect()
    }

    /// All objects, for `restore`.
    pub(crate) fn backup(&self) -> Store {
        self.world.store.clone()
    }

    /// The objects of then, with their versions, as when etcd was restored. Nothing that happened before can be watched.
    pub(crate) fn restore(&mut self, backup: &Store) {
        self.world.store = backup.clone();
        self.world.store.compact();
    }

    /// Only what is to come can be watched.
    pub(crate) fn compact(&mut self) {
        self.world.store.compact();
    }
}

impl Following {
    pub(crate) fn lasts(&self) -> std::time::Duration {
        self.watch.lasts()
    }

    /// How far things are, if the watch wants to be told.
    pub(crate) fn bookmark(&self) -> Option<Vec<u8>> {
        self.watch.bookmark_line(self.cursor)
    }
}

#[track_caller]
fn target(path: &str) -> Target {
    Target::parse(path).unwrap_or_else(|| panic!("nothing is served at {path}"))
}

#[track_caller]
fn done<T>(result: Result<T, ApiError>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {}", error.code, error.message))
}
