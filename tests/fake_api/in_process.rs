//! The server without network and threads, for simulations.

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

/// An open watch and its position.
pub(crate) struct Following {
    watch: Box<Watch>,
    cursor: u64,
}

/// The next part of a watch.
pub(crate) enum Lines {
    GoOn(Vec<Vec<u8>>),
    /// The last line.
    End(Vec<u8>),
}

impl Server {
    /// All times and generated names derive from `clock` and `seed`.
    pub(crate) fn new(clock: fn() -> Timestamp, seed: u64) -> Self {
        // No TLS handshake uses it.
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

    /// Begins the watch. Returns its initial lines and its position.
    pub(crate) fn follow(watch: Box<Watch>) -> (Vec<Vec<u8>>, Following) {
        let cursor = watch.from();
        (watch.first_lines(), Following { watch, cursor })
    }

    /// The size in bytes from which etcd refuses an object.
    pub(crate) fn set_largest_object(&mut self, bytes: usize) {
        self.world.options.largest_object = bytes;
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

    /// Creates an object, whose own kind determines the path.
    #[track_caller]
    pub(crate) fn create(&mut self, object: &Value) -> Value {
        let target = Target::of_object(object).expect("something that is served");
        let mut object = object.clone();
        if target.resource.namespaced {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        done(self.world.create(&Caller::test(), &target.named(""), object)).object
    }

    /// Applies a JSON merge patch to the object at a path.
    #[track_caller]
    pub(crate) fn patch(&mut self, path: &str, patch: &Value) -> Value {
        done(self.world.patch(&Caller::test(), &target(path), PatchType::Merge, patch)).object
    }

    /// Deletes like `kubectl delete`. Without a grace period the object is removed at once.
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

    /// Restores the objects with their versions, like an etcd restore. Watches cannot resume from earlier versions.
    pub(crate) fn restore(&mut self, backup: &Store) {
        self.world.store = backup.clone();
        self.world.store.compact();
    }

    /// Drops the watch history.
    pub(crate) fn compact(&mut self) {
        self.world.store.compact();
    }
}

impl Following {
    pub(crate) fn lasts(&self) -> std::time::Duration {
        self.watch.lasts()
    }

    /// A bookmark line, if the watch wants bookmarks.
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
