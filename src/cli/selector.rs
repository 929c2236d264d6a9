//! Label selectors as kubectl's `-l`: `app=web,tier!=db,env in (a, b),!old`. Pure.

use std::fmt;
use std::str::FromStr;

use crate::types::api::Map;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    /// The values of which one is wanted, or none; `None`: any value.
    values: Option<Vec<String>>,
    is_wanted: bool,
}

impl Selector {
    pub(super) fn matches(&self, labels: &Map<String>) -> bool {
        self.0.iter().all(|requirement| {
            let is_met = match (labels.get(&requirement.key), &requirement.values) {
                (Some(value), Some(values)) => values.contains(value),
                (Some(_), None) => true,
                (None, _) => false,
            };
            is_met == requirement.is_wanted
        })
    }
}

/// As the query parameter `labelSelector`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Requirement { key, values, is_wanted }) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match (values.as_deref(), is_wanted) {
                (None, true) => write!(f, "{comma}{key}")?,
                (None, false) => write!(f, "{comma}!{key}")?,
                (Some([value]), true) => write!(f, "{comma}{key}={value}")?,
                (Some([value]), false) => write!(f, "{comma}{key}!={value}")?,
                (Some(values), true) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                (Some(values), false) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

impl FromStr for Selector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parts = split(text).into_iter().map(str::trim).filter(|part| !part.is_empty());
        let requirements: Option<Vec<Requirement>> = parts.map(requirement).collect();
        let expected = "expected labels as app=web, app!=web, app or 'app in (a,b)'";
        requirements.filter(|all| !all.is_empty()).map(Self).ok_or(expected)
    }
}

/// The parts between commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(part: &str) -> Option<Requirement> {
    let of = |key: &str, values: Option<Vec<String>>, is_wanted| {
        let key = key.trim();
        let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
        is_key.then(|| Requirement { key: key.to_owned(), values, is_wanted })
    };
    let list = |list: &str| {
        let inner = list.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>())
    };
    if let Some((key, values)) = part.split_once(" notin ") {
        return of(key, Some(list(values)?), false);
    }
    if let Some((key, values)) = part.split_once(" in ") {
        return of(key, Some(list(values)?), true);
    }
    for (operator, is_wanted) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = part.split_once(operator) {
            return of(key, Some(vec![value.trim().to_owned()]), is_wanted);
        }
    }
    match part.strip_prefix('!') {
        Some(key) => of(key, None, false),
        None => of(part, None, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_all_met() {
        let mut labels = Map::default();
        labels.insert("app", "web".to_owned());
        labels.insert("example.com/tier", "front".to_owned());
        for (selector, expected) in [
            ("app=web", true),
            ("app==web", true),
            ("app=db", false),
            ("app!=db", true),
            ("zone!=a", true),
            ("app", true),
            ("zone", false),
            ("!zone", true),
            ("!app", false),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("app=web,example.com/tier=front", true),
            ("app in (web,db),example.com/tier=back", false),
        ] {
            assert_eq!(selector.parse::<Selector>().unwrap().matches(&labels), expected, "{selector}");
        }
    }

    #[test]
    fn selector_is_written_as_the_api_server_reads_it() {
        let text = "app==web,tier!=db,zone in (a, b),old notin (x, y),!gone,here";
        let written = "app=web,tier!=db,zone in (a,b),old notin (x,y),!gone,here";
        let selector: Selector = text.parse().unwrap();
        assert_eq!(selector.to_string(), written);
        assert_eq!(written.parse::<Selector>().unwrap(), selector);
    }

    #[test]
    fn malformed_selector_is_an_error() {
        for text in ["", ",", "=web", "app in web", "a b", "!"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
