//! A pod of the API server with its fields at their extremes.

use coracle::types::api::{Pod, decode, encode, pod_limits, pod_requests, qos_class};
use serde_json::{Value, json};

/// The API server does not accept larger objects, in bytes of JSON.
const MAX_POD: usize = 3 << 20;
const POD: &str = include_str!("../../tests/data/upstream-1.36/pods/guaranteed.json");

/// Each three bytes replace the value of one field, selected by the first two, by an extreme one.
pub(crate) fn check(data: &[u8]) {
    let Ok(mut pod) = serde_json::from_str::<Value>(POD) else { return };
    for change in data.chunks_exact(3).take(64) {
        let [high, low, value] = *change else { return };
        let mut place = u16::from_be_bytes([high, low]);
        replace(&mut pod, &mut place, value);
    }
    if encoded_size(&pod) > MAX_POD {
        return;
    }
    let Ok(decoded) = decode::<Pod>(pod) else { return };
    let pod = decoded.value;
    let _ = qos_class(&pod);
    drop((encode(&pod).to_string(), pod_requests(&pod.spec), pod_limits(&pod.spec)));
    coracle::control::pod_sources::static_pod::check_manifest(encode(&pod).to_string().as_bytes());
}

fn encoded_size(value: &Value) -> usize {
    value.to_string().len()
}

/// Replaces the field with this number, counted through the whole object. True if it was found.
fn replace(value: &mut Value, place: &mut u16, extreme: u8) -> bool {
    if *place == 0 {
        *value = of(extreme, value);
        return true;
    }
    *place -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().any(|value| replace(value, place, extreme)),
        Value::Array(values) => values.iter_mut().any(|value| replace(value, place, extreme)),
        Value::Bool(_) | Value::Null | Value::Number(_) | Value::String(_) => false,
    }
}

fn of(extreme: u8, old: &Value) -> Value {
    match extreme % 20 {
        0 => Value::Null,
        1 => json!(i64::MIN),
        2 => json!(i64::MAX),
        3 => json!(u64::MAX),
        4 => json!(-1),
        5 => json!(0),
        6 => json!(1e308),
        7 => json!(i64::from(i32::MAX) + 1),
        8 => json!(""),
        9 => json!("x".repeat(70_000)),
        10 => json!("9999999999999999999E"),
        11 => json!("-1"),
        12 => json!("\u{0}\u{fffd}/../.."),
        13 => json!("$(A)$(A)$$(A)"),
        14 => json!([]),
        15 => json!({}),
        16 if encoded_size(old) < 10_000 => json!([old, old, old]),
        17 => json!({ "a": old }),
        18 => json!(true),
        _ => json!("0001-01-01T00:00:00Z"),
    }
}
