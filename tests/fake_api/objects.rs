//! A test's own operations on objects, without authorization.

use serde_json::{Value, json};

use super::FakeApi;
use super::api_error::ApiError;
use super::deletion::DeleteOptions;
use super::patch::PatchType;
use super::resources::Target;
use super::signer;
use super::verbs::Caller;

#[track_caller]
fn target(path: &str) -> Target {
    Target::parse(path).unwrap_or_else(|| panic!("nothing is served at {path}"))
}

#[track_caller]
fn done<T>(result: Result<T, ApiError>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {}", error.code, error.message))
}

impl FakeApi {
    /// Creates an object, and its namespace if absent. The object's own kind determines the path.
    #[track_caller]
    pub(crate) fn create(&self, object: &Value) -> Value {
        let Some(target) = Target::of_object(object) else { panic!("nothing like this is served: {object}") };
        let mut object = object.clone();
        if target.resource.namespaced {
            object["metadata"]["namespace"] = json!(target.namespace);
            let namespace = format!("/api/v1/namespaces/{}", target.namespace);
            if self.get(&namespace).is_none() {
                let metadata = json!({ "name": target.namespace });
                self.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }));
            }
        }
        let collection = target.named("");
        done(self.change(|world| world.create(&Caller::test(), &collection, object))).object
    }

    /// Replaces an object. A `resourceVersion` in it must be the current one.
    #[track_caller]
    pub(crate) fn update(&self, object: &Value) -> Value {
        let Some(target) = Target::of_object(object) else { panic!("nothing like this is served: {object}") };
        done(self.change(|world| world.update(&Caller::test(), &target, object.clone()))).object
    }

    /// Applies a JSON merge patch to the object at a path, which may end in `/status`.
    #[track_caller]
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> Value {
        let target = target(path);
        done(self.change(|world| world.patch(&Caller::test(), &target, PatchType::Merge, patch))).object
    }

    /// Deletes like `kubectl delete`: a pod on a node gets its grace period.
    #[track_caller]
    pub(crate) fn delete(&self, path: &str) {
        self.delete_with(path, &DeleteOptions::default());
    }

    /// Deletes with this grace period.
    #[track_caller]
    pub(crate) fn delete_with_grace(&self, path: &str, seconds: i64) {
        self.delete_with(path, &DeleteOptions { grace: Some(seconds), ..DeleteOptions::default() });
    }

    #[track_caller]
    fn delete_with(&self, path: &str, options: &DeleteOptions) {
        let target = target(path);
        done(self.change(|world| world.delete(&Caller::test(), &target, options)));
    }

    /// Removes an object without any event.
    #[track_caller]
    pub(crate) fn lose(&self, path: &str) {
        let key = target(path).key();
        self.change(|world| world.store.forget(&key));
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.look(|world| world.get(path).map(|object| Value::clone(&object)))
    }

    /// The objects at a path such as `/api/v1/pods`.
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.look(|world| world.list(path).iter().map(|object| Value::clone(object)).collect())
    }

    /// Binds a pod like the scheduler.
    #[track_caller]
    pub(crate) fn bind(&self, pod: &str, node: &str) {
        self.patch(pod, &json!({ "spec": { "nodeName": node } }));
        let condition = json!({ "type": "PodScheduled", "status": "True", "lastProbeTime": null });
        self.patch(&format!("{pod}/status"), &json!({ "status": { "conditions": [condition] } }));
    }

    #[track_caller]
    pub(crate) fn approve(&self, name: &str) {
        self.decide(name, "Approved", "KubectlApprove", "This CSR was approved by kubectl certificate approve.");
    }

    #[track_caller]
    pub(crate) fn deny(&self, name: &str) {
        self.decide(name, "Denied", "KubectlDeny", "This CSR was denied by kubectl certificate deny.");
    }

    #[track_caller]
    fn decide(&self, name: &str, kind: &str, reason: &str, message: &str) {
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        let approval = target(&format!("{path}/approval"));
        let time = self.look(|world| world.time());
        let mut request = self.get(&path).unwrap_or_else(|| panic!("there is no request {name}"));
        signer::set_condition(&mut request, kind, reason, message, &time);
        done(self.change(|world| world.update(&Caller::test(), &approval, request)));
    }
}
