//! Devices that containers may use without a device plugin: `devices` of `coracle.yaml`. Pure.

use serde_json::Value;

use super::check::Problem;
use crate::types::api::{DeviceAttribute, DeviceAttributes, MAX_ATTRIBUTES, is_attribute_name, is_extended_resource};

/// Device files that form a resource. Each is allocated to one container at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceRule {
    pub(crate) resource: String,
    /// Patterns with `*` and `?` in file names.
    pub(crate) paths: Vec<String>,
    /// A subset of `rwm`.
    pub(crate) permissions: String,
    /// Attributes of all its devices. They replace those that sysfs gives.
    pub(crate) attributes: DeviceAttributes,
}

/// Attributes of a rule: sysfs gives others.
const MAX_RULE_ATTRIBUTES: usize = MAX_ATTRIBUTES / 2;

/// The device rules of a checked document.
pub(super) fn device_rules(document: &Value) -> Result<Vec<DeviceRule>, Problem> {
    let mut rules: Vec<DeviceRule> = Vec::new();
    for (index, value) in document["devices"].as_array().into_iter().flatten().enumerate() {
        let problem = |field: &str, fault: String| Problem { path: format!("devices[{index}]{field}"), fault };
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let resource = text("resource");
        if !is_extended_resource(&resource) {
            let fault = format!("expected the name of a resource such as example.com/camera, found {resource:?}");
            return Err(problem(".resource", fault));
        }
        if rules.iter().any(|rule| rule.resource == resource) {
            return Err(problem(".resource", format!("{resource} is there already: it can have several paths")));
        }
        let listed = value["paths"].as_array().into_iter().flatten();
        let paths: Vec<String> = listed.map(|path| path.as_str().unwrap_or_default().to_owned()).collect();
        if paths.is_empty() {
            return Err(problem(".paths", "required: a list such as [\"/dev/video*\"]".to_owned()));
        }
        for (index, path) in paths.iter().enumerate() {
            let is_whole = |part: &str| !part.is_empty() && part != "." && part != "..";
            let is_path = path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_whole));
            if !is_path || path.contains(['[', ']', '{', '}', '\0']) {
                let fault = format!("expected a path with * and ? such as \"/dev/video*\", found {path:?}");
                return Err(problem(&format!(".paths[{index}]"), fault));
            }
        }
        let permissions = match text("permissions") {
            text if text.is_empty() => "rw".to_owned(),
            text => text,
        };
        let is_of = |letter: char| permissions.matches(letter).count() <= 1;
        if !permissions.chars().all(|letter| "rwm".contains(letter) && is_of(letter)) {
            let fault = format!("expected some of r, w and m, found {permissions:?}");
            return Err(problem(".permissions", fault));
        }
        let mut attributes = DeviceAttributes::new();
        for (name, value) in value["attributes"].as_object().into_iter().flatten() {
            if !is_attribute_name(name) {
                let fault = format!("expected the name of an attribute such as model, found {name:?}");
                return Err(problem(".attributes", fault));
            }
            let read = DeviceAttribute::read(value);
            let read = read.map_err(|form| problem(&format!(".attributes[{name}]"), format!("expected {form}")))?;
            attributes.insert(name.clone(), read);
        }
        if attributes.len() > MAX_RULE_ATTRIBUTES {
            return Err(problem(".attributes", format!("more than {MAX_RULE_ATTRIBUTES} attributes")));
        }
        rules.push(DeviceRule { resource, paths, permissions, attributes });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_needs_a_resource_and_paths() {
        let rule = json!({"resource": "example.com/camera", "paths": ["/dev/video*", "/dev/v4l/by-id/x"]});
        let rules = device_rules(&json!({"devices": [rule]})).unwrap();
        let paths = ["/dev/video*", "/dev/v4l/by-id/x"].map(str::to_owned).to_vec();
        let resource = "example.com/camera".to_owned();
        let expected = DeviceRule { resource, paths, permissions: "rw".to_owned(), ..DeviceRule::default() };
        assert_eq!(rules, [expected]);
        let rule = json!({"resource": "a.b/c", "paths": ["/dev/x"], "permissions": "mrw"});
        assert_eq!(device_rules(&json!({"devices": [rule]})).unwrap()[0].permissions, "mrw");
        assert_eq!(device_rules(&json!({})).unwrap(), []);
        let attributes = json!({"model": "imx219", "lanes": 2, "driverVersion": {"version": "1.2.3"}});
        let rule = json!({"resource": "a.b/c", "paths": ["/dev/x"], "attributes": attributes});
        let read = device_rules(&json!({"devices": [rule]})).unwrap().remove(0).attributes;
        let expected = [
            ("driverVersion", DeviceAttribute::Version("1.2.3".to_owned())),
            ("lanes", DeviceAttribute::Int(2)),
            ("model", DeviceAttribute::String("imx219".to_owned())),
        ];
        assert_eq!(read, expected.map(|(name, attribute)| (name.to_owned(), attribute)).into_iter().collect());
    }

    #[test]
    fn errors_name_the_field() {
        let good = || json!({"resource": "a.b/c", "paths": ["/dev/x"]});
        for (field, value, line) in [
            (
                "resource",
                json!("cpu"),
                "devices[1].resource: expected the name of a resource such as example.com/camera, found \"cpu\"",
            ),
            ("resource", json!("a.b/c"), "devices[1].resource: a.b/c is there already: it can have several paths"),
            ("paths", json!([]), "devices[1].paths: required: a list such as [\"/dev/video*\"]"),
            (
                "paths",
                json!(["/dev/a", "dev/b"]),
                "devices[1].paths[1]: expected a path with * and ? such as \"/dev/video*\", found \"dev/b\"",
            ),
            (
                "paths",
                json!(["/dev/../etc"]),
                "devices[1].paths[0]: expected a path with * and ? such as \"/dev/video*\", found \"/dev/../etc\"",
            ),
            ("permissions", json!("rx"), "devices[1].permissions: expected some of r, w and m, found \"rx\""),
            (
                "attributes",
                json!({"my-model": "x"}),
                "devices[1].attributes: expected the name of an attribute such as model, found \"my-model\"",
            ),
            (
                "attributes",
                json!({"firmware": 2.1}),
                "devices[1].attributes[firmware]: expected a string of at most 64 bytes, a whole number, true, false, or \
                 {version: \"1.2.3\"}",
            ),
            ("permissions", json!("rr"), "devices[1].permissions: expected some of r, w and m, found \"rr\""),
        ] {
            let mut rule = json!({"resource": "d.e/f", "paths": ["/dev/x"]});
            rule[field] = value;
            let refused = device_rules(&json!({"devices": [good(), rule]})).unwrap_err();
            assert_eq!(refused.to_string(), line);
        }
    }
}
