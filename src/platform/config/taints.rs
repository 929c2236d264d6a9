//! The taints that a node registers with. Pure.

use serde_json::{Map, Value, json};

use super::check::{Problem, conflict};
use super::fields::Fields;
use super::schema::TAINT_EFFECTS;
use crate::types::api::Taint;
use crate::types::api::validation::names::{is_label_value, is_qualified_name};

/// The field in configuration files.
pub(super) const REGISTER_WITH_TAINTS_FIELD: &str = "registerWithTaints";

/// Converts `key=value:effect,key:effect` to the form of a file. The check of the fields finds invalid values.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let taint = |part: &str| {
        let (key, effect) = part.rsplit_once(':')?;
        let (key, value) = key.split_once('=').unwrap_or((key, ""));
        is_taint(key, value, effect).then(|| json!({ "key": key, "value": value, "effect": effect }))
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| taint(part).ok_or_else(|| format!("expected {EXPECTED_TAINTS}, found {part:?}"))).collect()
}

const EXPECTED_TAINTS: &str = "taints such as key=value:NoSchedule or key:NoExecute";

fn is_taint(key: &str, value: &str, effect: &str) -> bool {
    is_qualified_name(key) && is_label_value(value) && TAINT_EFFECTS.contains(&effect)
}

/// The taints from files and flags.
pub(super) fn read(fields: &Fields<'_>) -> Result<Vec<Taint>, Problem> {
    let mut taints: Vec<Taint> = Vec::new();
    let entries = fields
        .at(REGISTER_WITH_TAINTS_FIELD)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object);
    for (index, taint) in entries.enumerate() {
        let wrong =
            |field, fault: String| Err(conflict(&format!("{REGISTER_WITH_TAINTS_FIELD}[{index}]{field}"), fault));
        let [key, value, effect] = texts(taint);
        if !is_taint(key, value, effect) {
            return wrong("", format!("expected {EXPECTED_TAINTS}, found {:?}", written(taint)));
        }
        if taint.get("timeAdded").is_some_and(|time| !time.is_null()) {
            return wrong(".timeAdded", "expected nothing: the API server's own".to_owned());
        }
        if taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            return wrong("", format!("expected one taint of {key} with the effect {effect}, found two"));
        }
        let [key, value, effect] = [key, value, effect].map(str::to_owned);
        taints.push(Taint { key, value, effect: effect.into(), ..Taint::default() });
    }
    Ok(taints)
}

/// The taint as a part of the flag, which splits at commas and trims.
pub(super) fn flag_part(taint: &Map<String, Value>) -> Result<String, String> {
    let [key, value, effect] = texts(taint);
    match is_taint(key, value, effect) {
        true => Ok(written(taint)),
        false => Err(format!("expected {EXPECTED_TAINTS}, found {:?}", written(taint))),
    }
}

fn texts(taint: &Map<String, Value>) -> [&str; 3] {
    ["key", "value", "effect"].map(|name| taint.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// The taint as the flag spells it.
fn written(taint: &Map<String, Value>) -> String {
    let [key, value, effect] = texts(taint);
    format!("{key}={value}:{effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_have_a_key_an_optional_value_and_an_effect() {
        let parsed = parse("a=b:NoSchedule, example.com/c=:NoExecute,d:PreferNoSchedule").unwrap();
        let expected = json!([
            { "key": "a", "value": "b", "effect": "NoSchedule" },
            { "key": "example.com/c", "value": "", "effect": "NoExecute" },
            { "key": "d", "value": "", "effect": "PreferNoSchedule" },
        ]);
        assert_eq!(parsed, expected);
        assert_eq!(parse(""), Ok(json!([])));
        for text in ["a", "a=b", ":NoSchedule", "a b:NoSchedule", "a=b=c:NoSchedule", "a:Never", "a=b:NoSchedule:x"] {
            assert_eq!(parse(text), Err(format!("expected {EXPECTED_TAINTS}, found {text:?}")));
        }
    }

    #[track_caller]
    fn refused(taints: Value) -> String {
        let fields = json!({ REGISTER_WITH_TAINTS_FIELD: taints });
        read(&Fields(fields.as_object().unwrap())).unwrap_err().to_string()
    }

    #[test]
    fn files_and_flags_accept_the_same_taints() {
        let taint = json!({ "key": "a", "effect": "NoSchedule" });
        assert_eq!(
            refused(json!([taint, taint])),
            "registerWithTaints[1]: expected one taint of a with the effect NoSchedule, found two"
        );
        assert_eq!(
            refused(json!([{ "key": "a" }])),
            "registerWithTaints[0]: expected taints such as key=value:NoSchedule or key:NoExecute, found \"a=:\""
        );
        let timed = json!({ "key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" });
        assert_eq!(refused(json!([timed])), "registerWithTaints[0].timeAdded: expected nothing: the API server's own");
    }
}
