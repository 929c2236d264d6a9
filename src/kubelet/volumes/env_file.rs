//! Environment files in volumes: lines `NAME='value'`, where a value may span lines. Pure.
//!
//! A malformed line before the wanted variable is an error.

use super::error::EnvFileError;
use crate::types::sorted::SortedMap;

/// Sets the values of those of `wanted` that the file sets. After an error the others are unknown.
pub(super) fn find(text: &str, wanted: &mut SortedMap<&str, Option<String>>) -> Result<(), EnvFileError> {
    let mut set = |name: &str, value: String| {
        if let Some(first @ None) = wanted.get_mut(name) {
            *first = Some(value);
        }
    };
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let wrong = |problem| Err(EnvFileError::Line(number + 1, problem));
        let line = line.trim_start_matches(BLANKS);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { return wrong("no '='") };
        if name.is_empty() {
            return wrong("no name before '='");
        }
        if name.ends_with(BLANKS) {
            return wrong("a blank before '='");
        }
        if value.starts_with(BLANKS) {
            // A shell would run the rest of the line as a command with an empty variable.
            set(name, String::new());
            continue;
        }
        let Some(first) = value.strip_prefix('\'') else { return wrong("a value must stand in single quotes") };
        let mut value = String::new();
        let mut rest = first;
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches(BLANKS);
            }
            value.push_str(rest);
            value.push('\n');
            let Some((_, next)) = lines.next() else { return wrong("the quotes are not closed") };
            rest = next;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return wrong("text other than a comment after the quotes");
        }
        set(name, value);
    }
    Ok(())
}

const BLANKS: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<Option<&str>, &str>) {
        let mut found = SortedMap::from([("KEY", None)]);
        let read = find(text, &mut found).map_err(|error| error.to_string());
        let found = found.get("KEY").cloned().flatten().map_or_else(|| read.map(|()| None), |value| Ok(Some(value)));
        assert_eq!(found.as_ref().map(Option::as_deref).map_err(String::as_str), expected, "{text:?}");
    }

    #[test]
    fn value_in_single_quotes_is_taken_literally() {
        check("KEY='a b'", Ok(Some("a b")));
        check("# remark\n\n  \t\n  OTHER='x'\n\tKEY='$(A) \\n \"'  # remark\nKEY='later'", Ok(Some("$(A) \\n \"")));
        check("KEY='one\n# two\n\nthree'\n", Ok(Some("one\n# two\n\nthree")));
        check("KEY=''", Ok(Some("")));
        check("KEY= 'x'", Ok(Some("")));
        check("OTHER= x\nKEY='y'\r\n", Ok(Some("y")));
        check("KEYS='a'\nMY_KEY='b'", Ok(None));
        check("", Ok(None));
    }

    #[test]
    fn malformed_line_is_reported_by_number() {
        check("A='x'\nnothing", Err("line 2: no '='"));
        check("='x'", Err("line 1: no name before '='"));
        check("A ='x'", Err("line 1: a blank before '='"));
        check("A=x", Err("line 1: a value must stand in single quotes"));
        check("\nA='x\ny\n", Err("line 2: the quotes are not closed"));
        check("A='x' y", Err("line 1: text other than a comment after the quotes"));
        check("KEY='x'\nA=x", Ok(Some("x")));
    }
}
