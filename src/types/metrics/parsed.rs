//! A strict parser of Prometheus' text format. For tests.
//!
//! Written from the description of the format and not from the writer. Without dependencies, so that tests of the whole
//! program can include it.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Series = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: String,
    /// Name with suffix, labels, value, and the optional timestamp.
    pub(crate) samples: Vec<(String, Series, f64, Option<i64>)>,
}

impl Family {
    /// The distinct sets of label names of its samples, without `le`.
    pub(crate) fn label_names(&self) -> BTreeSet<Vec<String>> {
        let names = |series: &Series| series.keys().filter(|name| *name != "le").cloned().collect();
        self.samples.iter().map(|(_, series, ..)| names(series)).collect()
    }

    /// The value of the one sample that has these labels.
    #[track_caller]
    pub(crate) fn value(&self, labels: &[(&str, &str)]) -> f64 {
        let has =
            |series: &Series| labels.iter().all(|(name, value)| series.get(*name).is_some_and(|has| has == value));
        let values: Vec<f64> = self.samples.iter().filter(|sample| has(&sample.1)).map(|sample| sample.2).collect();
        assert_eq!(values.len(), 1, "{labels:?} of {:?}", self.samples);
        values.into_iter().next().unwrap()
    }
}

/// The families of a page. Panics on a duplicate series, a split family, a sample outside its family, or a histogram
/// that is not cumulative.
#[track_caller]
pub(crate) fn parse(text: &str) -> BTreeMap<String, Family> {
    let families = parse_recorded(text);
    families.values().filter(|family| family.kind == "histogram").for_each(check_histogram);
    families
}

/// As [`parse`], for an excerpt whose histograms may lack buckets.
#[track_caller]
pub(crate) fn parse_recorded(text: &str) -> BTreeMap<String, Family> {
    assert!(text.is_empty() || text.ends_with('\n'), "the last line has no end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            assert!(!families.contains_key(name), "{name} is there twice");
            assert!(is_name(name, ":"), "{name}");
            families.insert(name.to_owned(), Family { help: help.to_owned(), ..Family::default() });
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "the type of another family");
            assert!(matches!(kind, "counter" | "gauge" | "histogram" | "summary"), "{line}");
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let sample = sample(line);
            let family = families.get_mut(&current).unwrap_or_else(|| panic!("a sample of no family: {line}"));
            let suffix = sample.0.strip_prefix(&current).unwrap_or_else(|| panic!("not of {current}: {line}"));
            let suffixes: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            assert!(family.kind != "counter" || sample.2 >= 0.0, "{line}");
            assert!(seen.insert((sample.0.clone(), sample.1.clone())), "twice: {line}");
            family.samples.push(sample);
        }
    }
    families
}

fn check_histogram(family: &Family) {
    let mut last: BTreeMap<Series, (f64, f64)> = BTreeMap::new();
    for (name, series, value, _) in &family.samples {
        let mut key = series.clone();
        let bound = key.remove("le");
        if name.ends_with("_bucket") {
            let bound = match bound.unwrap().as_str() {
                "+Inf" => f64::INFINITY,
                number => number.parse().unwrap(),
            };
            let (before, count) = last.insert(key, (bound, *value)).unwrap_or((f64::NEG_INFINITY, 0.0));
            assert!(before < bound && count <= *value, "{name} {series:?}");
        } else if name.ends_with("_count") {
            assert_eq!(last.get(&key), Some(&(f64::INFINITY, *value)), "{name} {series:?}");
        }
    }
}

fn sample(line: &str) -> (String, Series, f64, Option<i64>) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, ":"), "{line}");
    let mut series = Series::new();
    if let Some(mut labels) = rest.strip_prefix('{') {
        while !labels.starts_with('}') {
            let (label, after) = labels.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label, ""), "{line}");
            let (value, after) = quoted(after).unwrap_or_else(|| panic!("{line}"));
            assert!(series.insert(label.to_owned(), value).is_none(), "{label} twice: {line}");
            labels = after.strip_prefix(',').unwrap_or(after);
        }
        rest = labels.strip_prefix('}').unwrap();
    }
    let mut words = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}")).split(' ');
    let value = match words.next().unwrap() {
        "+Inf" => f64::INFINITY,
        number => number.parse().unwrap_or_else(|_| panic!("{line}")),
    };
    let at = words.next().map(|at| at.parse().unwrap_or_else(|_| panic!("{line}")));
    assert_eq!(words.next(), None, "{line}");
    (name.to_owned(), series, value, at)
}

/// The value up to its closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, text.split_at(at + 1).1)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                c @ ('\\' | '"') => value.push(c),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

fn is_name(name: &str, more: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || more.contains(c))
}
