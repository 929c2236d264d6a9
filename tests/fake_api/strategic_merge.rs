//! Strategic merge patches: lists with a merge key are merged element by element. Pure.

use serde_json::{Map, Value};

use super::api_error::ApiError;

type Fields = Map<String, Value>;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// How the elements of a list are identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListMerge {
    /// The list is replaced as a whole.
    Replace,
    /// By a merge key.
    ByKey(&'static str),
    /// By value.
    Primitive,
}

/// The lists that upstream's types mark as merged. A field name means the same in all types except those listed.
fn list_merge(kind: &str, name: &str) -> ListMerge {
    use ListMerge::{ByKey, Primitive, Replace};
    match (kind, name) {
        // This type has no patch strategy.
        ("CertificateSigningRequest", "conditions") => Replace,
        ("Service", "ports") => ByKey("port"),
        (_, "ports") => ByKey("containerPort"),
        (_, "conditions" | "addresses") => ByKey("type"),
        (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "env"
            | "imagePullSecrets"
            | "schedulingGates"
            | "resourceClaims"
            | "resourceClaimStatuses"
            | "allocatedResourcesStatus",
        )
        | ("ServiceAccount", "secrets")
        | ("CSINode", "drivers") => ByKey("name"),
        (_, "volumeMounts") => ByKey("mountPath"),
        (_, "volumeDevices") => ByKey("devicePath"),
        (_, "ownerReferences") => ByKey("uid"),
        (_, "hostAliases" | "podIPs" | "hostIPs") => ByKey("ip"),
        (_, "topologySpreadConstraints") => ByKey("topologyKey"),
        (_, "finalizers" | "podCIDRs") => Primitive,
        _ => Replace,
    }
}

/// Applies a patch to an object, whose own kind selects the strategies.
pub(crate) fn apply(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let (Value::Object(fields), Value::Object(patch)) = (object, patch) else {
        return Err(ApiError::bad_request("invalid JSON document"));
    };
    Merge { kind: &kind }.fields(fields, patch.clone())?;
    Ok(())
}

struct Merge<'a> {
    kind: &'a str,
}

impl Merge<'_> {
    fn fields(&self, original: &mut Fields, mut patch: Fields) -> Result<(), ApiError> {
        if let Some(directive) = patch.remove(DIRECTIVE) {
            match directive.as_str() {
                Some("replace") => *original = patch,
                Some("delete") => original.clear(),
                _ => {
                    patch.insert(DIRECTIVE.to_owned(), directive.clone());
                    return Err(bad_directive(&directive, &Value::Object(patch)));
                }
            }
            return Ok(());
        }
        retain_keys(original, &mut patch)?;
        self.ordered_lists(original, &mut patch)?;
        for (name, value) in patch {
            if let Some(list) = name.strip_prefix(DELETE_FROM) {
                delete_from(original, list, &value)?;
            } else if value.is_null() {
                original.remove(&name);
            } else {
                self.field(original, name, value)?;
            }
        }
        Ok(())
    }

    fn field(&self, original: &mut Fields, name: String, value: Value) -> Result<(), ApiError> {
        match (original.get_mut(&name), value) {
            (Some(Value::Object(fields)), Value::Object(patch)) => self.fields(fields, patch)?,
            (Some(Value::Array(items)), Value::Array(patch)) => {
                let taken = std::mem::take(items);
                *items = self.list(&name, taken, patch)?;
            }
            (_, value) => match without_directives(value) {
                Some(value) => drop(original.insert(name, value)),
                None => drop(original.remove(&name)),
            },
        }
        Ok(())
    }

    fn list(&self, name: &str, original: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        let strategy = list_merge(self.kind, name);
        if original.is_empty() && patch.is_empty() || strategy == ListMerge::Replace {
            return Ok(patch);
        }
        let (server_order, patch, merged) = match strategy {
            ListMerge::ByKey(key) => {
                let (original, patch) = special_elements(original, patch, key)?;
                let merged = self.elements(original.clone(), &patch, key)?;
                (original, patch, merged)
            }
            _ => {
                let mut merged = original.clone();
                merged.extend(patch.iter().filter(|item| !original.contains(item)).cloned());
                (original, patch, merged)
            }
        };
        Ok(in_order(merged, &patch, &server_order, strategy))
    }

    fn elements(&self, mut original: Vec<Value>, patch: &[Value], key: &str) -> Result<Vec<Value>, ApiError> {
        for element in patch {
            let Value::Object(fields) = element else { return Err(ApiError::plain("expected a map")) };
            let Some(value) = fields.get(key) else { return Err(no_merge_key(element, key)) };
            match original.iter_mut().find(|known| known.get(key) == Some(value)) {
                Some(Value::Object(known)) => self.fields(known, fields.clone())?,
                _ => original.push(without_nulls(element.clone())),
            }
        }
        Ok(original)
    }

    /// Applies each `$setElementOrder` to its list and removes both.
    fn ordered_lists(&self, original: &mut Fields, patch: &mut Fields) -> Result<(), ApiError> {
        let orders: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
        for directive in orders {
            let Some(Value::Array(order)) = patch.remove(&directive) else {
                return Err(ApiError::bad_request("invalid patch format of setElementOrder list"));
            };
            let name = directive.trim_start_matches(SET_ORDER).to_owned();
            let before = original.get(&name).and_then(Value::as_array).cloned();
            let patched = match patch.remove(&name) {
                Some(Value::Array(items)) => Some(items),
                Some(_) => return Err(ApiError::bad_request("invalid patch format of setElementOrder list")),
                None => None,
            };
            let strategy = list_merge(self.kind, &name);
            check_order(patched.as_deref().unwrap_or_default(), &order, strategy)?;
            let merged = match (before.clone(), patched) {
                (Some(before), Some(patched)) => self.list(&name, before, patched)?,
                (Some(before), None) => before,
                (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
                (None, None) => continue,
            };
            let server_order = before.unwrap_or_default();
            original.insert(name, Value::Array(in_order(merged, &order, &server_order, strategy)));
        }
        Ok(())
    }
}

fn same(strategy: ListMerge, one: &Value, other: &Value) -> bool {
    match strategy {
        ListMerge::ByKey(key) => one.get(key) == other.get(key),
        _ => one == other,
    }
}

/// Sorts the patched elements in the patch's order, and the others relative to them as before.
fn in_order(merged: Vec<Value>, order: &[Value], server_order: &[Value], strategy: ListMerge) -> Vec<Value> {
    let place = |item: &Value, list: &[Value]| list.iter().position(|other| same(strategy, item, other));
    let (mut ordered, rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(item, order).is_some());
    ordered.sort_by_key(|item| place(item, order));
    let mut all = Vec::with_capacity(ordered.len() + rest.len());
    let (mut ordered, mut rest) = (ordered.into_iter().peekable(), rest.into_iter().peekable());
    loop {
        let rest_is_next = match (rest.peek(), ordered.peek()) {
            (None, None) => return all,
            (None, _) => false,
            (_, None) => true,
            (Some(left), Some(right)) => match (place(left, server_order), place(right, server_order)) {
                (Some(left), Some(right)) => left < right,
                _ => false,
            },
        };
        all.extend(if rest_is_next { rest.next() } else { ordered.next() });
    }
}

/// Applies directive elements and leaves the others in the patch.
fn special_elements(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    let mut plain = Vec::new();
    let mut replace = false;
    for element in patch {
        match element.get(DIRECTIVE).and_then(Value::as_str) {
            None if element.get(DIRECTIVE).is_none() => plain.push(element),
            Some("delete") => {
                let Some(value) = element.get(key) else { return Err(no_merge_key(&element, key)) };
                original.retain(|known| known.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(ApiError::plain("merging lists cannot yet be specified in the patch")),
            _ => return Err(bad_directive(&element[DIRECTIVE], &element)),
        }
    }
    if replace { Ok((plain, Vec::new())) } else { Ok((original, plain)) }
}

fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), ApiError> {
    let Some(kept) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || ApiError::bad_request("invalid patch format of retainKeys");
    let kept = kept.as_array().ok_or_else(bad)?;
    let keeps = |name: &str| kept.iter().any(|known| known == name);
    let unknown = patch.iter().any(|(name, value)| {
        !value.is_null() && !name.starts_with(DELETE_FROM) && !name.starts_with(SET_ORDER) && !keeps(name)
    });
    if unknown {
        return Err(bad());
    }
    original.retain(|name, _| keeps(name));
    Ok(())
}

fn delete_from(original: &mut Fields, name: &str, gone: &Value) -> Result<(), ApiError> {
    let Value::Array(gone) = gone else {
        return Err(ApiError::bad_request("invalid patch format of primitive list"));
    };
    if let Some(Value::Array(items)) = original.get_mut(name) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// Checks that a patch's elements follow its own order.
fn check_order(patch: &[Value], order: &[Value], strategy: ListMerge) -> Result<(), ApiError> {
    if order.is_empty() {
        return Ok(());
    }
    let mut left = order.iter();
    let mut plain = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
    if plain.all(|item| left.any(|other| same(strategy, item, other))) {
        return Ok(());
    }
    let (patch, order) = (in_go(&patch.into()), in_go(&order.into()));
    Err(ApiError::plain(&format!(
        "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
    )))
}

/// The additions of a patch, without directives; `None` if the value is a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Some(kept.filter_map(|(name, value)| Some((name, without_directives(value)?))).collect())
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

/// Removes null fields from a new element.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        other => other,
    }
}

fn bad_directive(directive: &Value, fields: &Value) -> ApiError {
    ApiError::plain(&format!("unknown patch type: {} in map: {}", in_go(directive), in_go(fields)))
}

fn no_merge_key(element: &Value, key: &str) -> ApiError {
    ApiError::plain(&format!("map: {} does not contain declared merge key: {key}", in_go(element)))
}

/// Formats a value like Go.
fn in_go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(in_go).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{}", in_go(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}
