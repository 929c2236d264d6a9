//! The part of kubectl's JSONPath that scripts use: fields, indexes, `[*]`, `range` and texts. Pure.
//!
//! `{.items[*].metadata.name}`, `{range .items[*]}{.metadata.name}{"\n"}{end}`.

use std::str::FromStr;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Values(Vec<Step>),
    Range(Vec<Step>, Vec<Part>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    /// From the end if negative.
    Index(i64),
    All,
}

impl FromStr for JsonPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // kubectl also accepts a path without braces.
        let text = if text.contains('{') { text.to_owned() } else { format!("{{{text}}}") };
        let mut rest = text.as_str();
        let parts = parts(&mut rest, false)?;
        Ok(Self(parts))
    }
}

impl JsonPath {
    /// The text for `value`. A missing field is empty.
    pub(super) fn of(&self, value: &Value) -> String {
        let mut text = String::new();
        write(&self.0, value, &mut text);
        text
    }
}

fn write(parts: &[Part], value: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(literal) => text.push_str(literal),
            Part::Values(steps) => {
                let values: Vec<String> = selected_values(steps, value).into_iter().map(plain).collect();
                text.push_str(&values.join(" "));
            }
            Part::Range(steps, inner) => {
                selected_values(steps, value).into_iter().for_each(|item| write(inner, item, text))
            }
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn selected_values<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let mut values = vec![value];
    for step in steps {
        values = values.into_iter().flat_map(|value| step.of(value)).collect();
    }
    values
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), _) => value.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                let from_end = usize::try_from(index.unsigned_abs()).ok();
                let at = if *index < 0 { from_end.and_then(|back| list.len().checked_sub(back)) } else { from_end };
                at.and_then(|place| list.get(place)).into_iter().collect()
            }
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::All, Value::Object(object)) => object.values().collect(),
            (Self::Index(_) | Self::All, _) => Vec::new(),
        }
    }
}

/// The parts until the end of the text, or until `{end}` within a range.
fn parts(rest: &mut &str, in_range: bool) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (text, braced) = rest.split_once('{').unwrap_or((rest, ""));
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        if text.len() == rest.len() {
            *rest = "";
            break;
        }
        let end = end_of_braces(braced).ok_or("expected } at the end of a part")?;
        let (inner, after) = braced.split_at_checked(end).unwrap_or((braced, ""));
        *rest = after.strip_prefix('}').unwrap_or(after);
        let inner = inner.trim();
        if inner == "end" {
            return if in_range { Ok(parts) } else { Err("{end} without {range}".to_owned()) };
        }
        if let Some(path) = inner.strip_prefix("range ") {
            let steps = steps(path.trim())?;
            parts.push(Part::Range(steps, self::parts(rest, true)?));
        } else if let Some(quoted) = inner.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
            parts.push(Part::Text(quoted.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"")));
        } else {
            parts.push(Part::Values(steps(inner)?));
        }
    }
    if in_range { Err("expected {end} after {range}".to_owned()) } else { Ok(parts) }
}

/// Where the closing brace is, which is not in quotes.
fn end_of_braces(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(index, c)| match (quote, c) {
        (None, '}') => Some(index),
        (None, '"' | '\'') => {
            quote = Some(c);
            None
        }
        (Some(open), _) if open == c => {
            quote = None;
            None
        }
        _ => None,
    })
}

fn steps(path: &str) -> Result<Vec<Step>, String> {
    let mut rest = path.trim_start_matches(['$', '@']);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let (inner, after) = bracket.split_once(']').ok_or_else(|| format!("{path}: expected ]"))?;
            steps.push(match inner.trim().trim_matches(['\'', '"']) {
                "*" => Step::All,
                name if name != inner.trim() => Step::Field(name.to_owned()),
                number => {
                    Step::Index(number.parse().map_err(|_| format!("{path}: filters and slices are not supported"))?)
                }
            });
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('.').unwrap_or(rest);
        // A dot in a name is written as `\.`.
        let mut is_escaped = false;
        let end = name.char_indices().find_map(|(index, c)| {
            let ends = !is_escaped && (c == '.' || c == '[');
            is_escaped = c == '\\';
            ends.then_some(index)
        });
        let (name, after) = name.split_at_checked(end.unwrap_or(name.len())).unwrap_or((name, ""));
        match name {
            "" if after.is_empty() || after.starts_with('.') => {
                if after.starts_with('.') {
                    return Err(format!("{path}: .. is not supported"));
                }
            }
            "" => {}
            "*" => steps.push(Step::All),
            name => steps.push(Step::Field(name.replace('\\', ""))),
        }
        rest = after;
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_scripts_give_the_same_as_kubectl() {
        let list = json!({ "items": [
            { "metadata": { "name": "a", "labels": { "example.com/tier": "x" } }, "status": { "podIP": "10.0.0.1" } },
            { "metadata": { "name": "b" }, "spec": { "containers": [{ "image": "i:1" }, { "image": "i:2" }] } },
        ] });
        for (path, text) in [
            ("{.items[*].metadata.name}", "a b"),
            (".items[0].status.podIP", "10.0.0.1"),
            ("{.items[-1].spec.containers[*].image}", "i:1 i:2"),
            ("{range .items[*]}{.metadata.name}{\"\\t\"}{.status.podIP}{\"\\n\"}{end}", "a\t10.0.0.1\nb\t\n"),
            ("{.items[0].metadata.labels.example\\.com/tier}", "x"),
            ("{.items[0].metadata.labels['example.com/tier']}", "x"),
            ("first: {$.items[0].metadata.name}!", "first: a!"),
            ("{.nothing[3].here}", ""),
            ("{.items[1].spec.containers[0]}", "{\"image\":\"i:1\"}"),
        ] {
            assert_eq!(path.parse::<JsonPath>().unwrap().of(&list), text, "{path}");
        }
    }

    #[test]
    fn malformed_path_is_an_error() {
        for path in ["{.a", "{range .items[*]}{.a}", "{end}", "{.items[?(@.a)]}", "{.a[0}", "{..a}"] {
            assert!(path.parse::<JsonPath>().is_err(), "{path}");
        }
    }
}
