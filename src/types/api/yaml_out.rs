//! Writes YAML that YAML 1.1 and 1.2 parsers read back as the same value. Pure.
//!
//! The layout is kubectl's: indented by two spaces, lists not indented, keys sorted.

use std::fmt::Write as _;

use serde_json::Value;

/// The document, with a trailing newline.
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Array(items) if !items.is_empty() => list(&mut out, items, 0),
        Value::Object(fields) if !fields.is_empty() => mapping(&mut out, fields, 0),
        _ => {
            scalar(&mut out, value, 2);
        }
    }
    out
}

fn mapping(out: &mut String, fields: &serde_json::Map<String, Value>, indent: usize) {
    for (at, (name, value)) in fields.iter().enumerate() {
        // The first key continues the caller's line, behind a dash or at its start.
        if at > 0 {
            pad(out, indent);
        }
        string(out, name);
        out.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                pad(out, indent + 2);
                mapping(out, fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                pad(out, indent);
                list(out, items, indent);
            }
            _ => {
                out.push(' ');
                scalar(out, value, indent + 2);
            }
        }
    }
}

fn list(out: &mut String, items: &[Value], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => mapping(out, fields, indent + 2),
            Value::Array(items) if !items.is_empty() => list(out, items, indent + 2),
            _ => scalar(out, item, indent + 2),
        }
    }
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Writes a value on one line, or a block indented by `indent`, and the line end.
fn scalar(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(text) if is_block(text) => return block(out, text, indent),
        Value::String(text) => string(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            let _ = write!(out, "{value}");
        }
    }
    out.push('\n');
}

/// Whether a multi-line string survives as a literal block.
fn is_block(text: &str) -> bool {
    let plain = |c: char| !is_special(c) || c == '\n';
    // An empty or indented first line would hide the block's indentation, and more than one trailing newline would need
    // an indicator of its own.
    text.contains('\n')
        && text.chars().all(plain)
        && !text.starts_with([' ', '\t', '\n'])
        && !text.ends_with("\n\n")
        && !text.lines().any(|line| line.ends_with([' ', '\t']))
}

fn block(out: &mut String, text: &str, indent: usize) {
    out.push_str(if text.ends_with('\n') { "|\n" } else { "|-\n" });
    for line in text.lines() {
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Writes a string on one line, quoted if a reader could take it for something else.
fn string(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            _ if is_special(c) => {
                // No special character lies beyond the basic plane; `\U` is here for completeness.
                let _ = match u32::from(c) {
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

/// Characters that YAML needs escaped: controls, Unicode line ends, the byte order mark.
fn is_special(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a string needs no quotes.
fn is_plain(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    let indicator = |c: char| "-?:,[]{}#&*!|>'\"%@`=<~".contains(c);
    let first = text.chars().next();
    // A leading dash is an indicator only before a space; `---` would begin a document.
    let dash = |c: char| c == '-' && text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_alphabetic());
    first.is_some_and(|c| !indicator(c) || dash(c))
        && !text.starts_with(' ')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(is_special)
        && !WORDS.contains(&word.as_str())
        && !is_number_like(&word)
}

/// Words that some reader takes for a boolean, a null or a float.
const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", ".nan", "-.inf"];

/// Whether some reader could take the lower-case text for a number or a date.
fn is_number_like(word: &str) -> bool {
    let body = word.strip_prefix(['-', '+']).unwrap_or(word);
    let digits = |c: char| c.is_ascii_digit();
    let dots = body.matches('.').count();
    // Text with two dots, such as an IPv4 address or a version, is not a number.
    let dotted = dots >= 2 && body.chars().all(|c| c.is_ascii_digit() || c == '.');
    let numeric = body.contains(digits) && body.chars().all(|c| c.is_ascii_digit() || "_.:e+-".contains(c));
    let based = ["0x", "0o", "0b"].iter().any(|base| body.starts_with(base));
    let date = body.len() > 5 && body.chars().take(4).all(digits) && body.chars().nth(4) == Some('-');
    based || date || numeric && !dotted || matches!(body, ".inf" | ".nan")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::yaml;

    /// Asserts that `value` reads back as itself.
    #[track_caller]
    fn check_round_trip(value: &Value) {
        let text = to_yaml(value);
        let read = yaml::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let read: Vec<&Value> = read.iter().map(|document| &document.value).collect();
        assert_eq!(read, [value], "{text}");
    }

    #[test]
    fn every_string_round_trips_in_every_position() {
        let letters =
            ["a", "1", "-", ":", " ", "#", "\n", "'", "\"", ".", "e", "~", "\\", "\t", "\u{85}", "[", ",", "|"];
        let mut texts = vec![String::new()];
        for length in 1..=3 {
            let shorter: Vec<String> =
                texts.iter().filter(|text| text.chars().count() == length - 1).cloned().collect();
            texts.extend(shorter.iter().flat_map(|text| letters.map(|letter| format!("{text}{letter}"))));
        }
        for text in &texts {
            check_round_trip(&json!({ "f": { "key": text, "list": [text, [text]] }, text: 1, "z": [{ "k": text }] }));
        }
    }

    #[test]
    fn documents_have_kubectls_layout() {
        let value = json!({
            "kind": "List",
            "empty": {}, "none": [], "nothing": null, "yes": true, "count": 3, "part": 0.5,
            "items": [{ "a": 1, "b": { "c": ["x", ["y", {}]] } }, "z"],
        });
        let text = "\
count: 3
empty: {}
items:
- a: 1
  b:
    c:
    - x
    - - \"y\"
      - {}
- z
kind: List
none: []
nothing: null
part: 0.5
\"yes\": true
";
        assert_eq!(to_yaml(&value), text);
        assert_eq!(to_yaml(&json!([])), "[]\n");
        assert_eq!(to_yaml(&json!("a")), "a\n");
    }

    #[test]
    fn unambiguous_strings_are_not_quoted() {
        for text in [
            "nginx:1.25",
            "registry.k8s.io/pause@sha256:ab12",
            "/etc/kubernetes/manifests",
            "10.77.0.1",
            "100m",
            "1Gi",
            "009e1e91-8e9a-4338-85dd-a1e95a2ac7f5",
            "two words",
            "-c",
            "--flag=value",
            "v1",
            "b\u{fc}ro",
            "a'b\"c",
        ] {
            assert_eq!(to_yaml(&json!(text)), format!("{text}\n"));
        }
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        for text in [
            "",
            "~",
            "null",
            "Null",
            "true",
            "Yes",
            "y",
            "N",
            "off",
            "1",
            "-1",
            "+1",
            "1.5",
            ".5",
            "1e3",
            "1_000",
            "0x1F",
            "0644",
            "0o17",
            "0b1",
            "1:30",
            "12:30:45",
            ".inf",
            "-.INF",
            ".NaN",
            "2026-01-02",
            "2026-01-02T03:04:05Z",
            "-",
            "- a",
            "a: b",
            "a:",
            "a #b",
            "#a",
            "&a",
            "*a",
            "!a",
            "@a",
            "`a",
            "%a",
            "[a",
            "{a",
            "|",
            ">",
            "'a",
            "\"a",
            " a",
            "a ",
            "=",
            "<<",
            "?a",
            ",a",
        ] {
            let quoted = format!("\"{}\"\n", text.replace('"', "\\\""));
            assert_eq!(to_yaml(&json!(text)), quoted);
        }
    }

    #[test]
    fn special_characters_are_escaped() {
        let text = "a\tb\\\u{1b}\u{85}\u{2028}\u{feff}\"";
        assert_eq!(to_yaml(&json!(text)), "\"a\\tb\\\\\\u001b\\u0085\\u2028\\ufeff\\\"\"\n");
        assert_eq!(to_yaml(&json!("a\n \n")), "\"a\\n \\n\"\n");
    }

    #[test]
    fn multi_line_text_becomes_a_block_where_possible() {
        let value = json!({ "a": { "sh": "if x\n  then y\n\nfi\n", "t": "one\ntwo" }, "l": ["p\nq\n"] });
        let text = "\
a:
  sh: |
    if x
      then y

    fi
  t: |-
    one
    two
l:
- |
  p
  q
";
        assert_eq!(to_yaml(&value), text);
        for text in ["\na\n", " a\nb", "a\n\n", "a \nb", "a\r\nb", "\n"] {
            assert!(to_yaml(&json!(text)).starts_with('"'), "{text:?}");
        }
    }
}
