//! Rollouts in the cluster: one ConfigMap each, written only if nobody else has written it meanwhile.

use std::fmt;

use serde_json::{Value, json};

use super::plan::Plan;
use super::state::State;
use crate::cli::fleet::{Operator, failure, seconds, text};
use crate::platform::apiserver::{ApiError, Patch, Request};

/// A rollout as it is stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) version: String,
    /// In Unix seconds.
    pub(super) created: i64,
    pub(super) plan: Plan,
    pub(super) state: State,
}

/// A request that changes something. What `--dry-run` prints is what is sent.
#[derive(Clone, Debug)]
pub(super) struct ApiWrite {
    verb: Verb,
    path: String,
    body: Value,
}

#[derive(Clone, Copy, Debug)]
enum Verb {
    Post,
    Patch,
    Delete,
}

/// Why a command cannot go on.
#[derive(Debug)]
pub(super) struct Obstacle {
    /// One line.
    pub(super) line: String,
    /// The next round may succeed.
    pub(super) passes: bool,
}

const ROLLOUT_LABEL: &str = "coracle.dev/rollout";

impl ApiWrite {
    pub(super) fn post(path: String, body: Value) -> Self {
        Self { verb: Verb::Post, path, body }
    }

    pub(super) fn patch(path: String, body: Value) -> Self {
        Self { verb: Verb::Patch, path, body }
    }

    pub(super) fn delete(path: String, body: Value) -> Self {
        Self { verb: Verb::Delete, path, body }
    }

    pub(super) async fn send(&self, operator: &mut Operator) -> Result<Value, ApiError> {
        let request = match self.verb {
            Verb::Post => Request::post(&*self.path, &self.body),
            Verb::Patch => Request::patch(&*self.path, Patch::Merge, &self.body),
            Verb::Delete => Request::delete(&*self.path, &self.body),
        };
        operator.send(request).await
    }
}

impl fmt::Display for ApiWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Post => "POST",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        };
        write!(f, "{verb} {} {}", self.path, self.body)
    }
}

impl Obstacle {
    pub(super) fn of(action: &str, error: &ApiError) -> Self {
        Self { line: failure(action, error), passes: error.is_retryable() }
    }

    pub(super) fn lasting(line: String) -> Self {
        Self { line, passes: false }
    }
}

impl Stored {
    fn of_object(object: &Value) -> Result<Self, Obstacle> {
        let name = text(object, "/metadata/name").unwrap_or_default().to_owned();
        let part = |key: &str| serde_json::from_str::<Value>(text(object, key).unwrap_or_default()).unwrap_or_default();
        let (plan, state) = (Plan::from_json(&part("/data/plan")), State::from_json(&part("/data/state")));
        let (Some(plan), Some(state)) = (plan, state) else {
            return Err(Obstacle::lasting(format!(
                "ConfigMap {name}: expected a rollout of this version, found another"
            )));
        };
        let version = text(object, "/metadata/resourceVersion").unwrap_or_default().to_owned();
        let created = seconds(object, "/metadata/creationTimestamp").unwrap_or_default();
        Ok(Self { name, version, created, plan, state })
    }

    /// Replaces the state, if nobody else has written meanwhile.
    pub(super) fn update(&self, namespace: &str, state: &State) -> ApiWrite {
        let body = json!({
            "metadata": { "resourceVersion": self.version },
            "data": { "state": state.to_json().to_string() },
        });
        ApiWrite::patch(path(namespace, &self.name), body)
    }

    /// Replaces plan and state.
    pub(super) fn replace(&self, namespace: &str, plan: &Plan, state: &State) -> ApiWrite {
        let body = json!({
            "metadata": { "resourceVersion": self.version },
            "data": { "plan": plan.to_json().to_string(), "state": state.to_json().to_string() },
        });
        ApiWrite::patch(path(namespace, &self.name), body)
    }
}

/// A rollout that does not exist yet.
pub(super) fn creation(namespace: &str, name: &str, plan: &Plan, state: &State) -> ApiWrite {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { ROLLOUT_LABEL: "true" } },
        "data": { "plan": plan.to_json().to_string(), "state": state.to_json().to_string() },
    });
    ApiWrite::post(folder(namespace), object)
}

/// Removes what this command has just created.
pub(super) fn removal(namespace: &str, stored: &Stored) -> ApiWrite {
    let body = json!({ "preconditions": { "resourceVersion": stored.version } });
    ApiWrite::delete(path(namespace, &stored.name), body)
}

pub(super) async fn read(operator: &mut Operator, namespace: &str, name: &str) -> Result<Option<Stored>, Obstacle> {
    match operator.get(&path(namespace, name)).await {
        Ok(object) => Stored::of_object(&object).map(Some),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(Obstacle::of(&format!("get rollout {name}"), &error)),
    }
}

pub(super) async fn list(operator: &mut Operator, namespace: &str) -> Result<Vec<Stored>, Obstacle> {
    let mut objects: Vec<Value> = Vec::new();
    let mut each = |object: Option<&Value>| match object {
        Some(object) => objects.push(object.clone()),
        None => objects.clear(),
    };
    let listed = operator.list(&folder(namespace), ROLLOUT_LABEL, &mut each).await;
    listed.map_err(|error| Obstacle::of("list rollouts", &error))?;
    objects.iter().map(Stored::of_object).collect()
}

fn folder(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn path(namespace: &str, name: &str) -> String {
    format!("{}/{name}", folder(namespace))
}
