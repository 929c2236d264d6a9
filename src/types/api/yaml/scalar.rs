//! Resolves plain scalars of YAML 1.1: string, number, boolean or null. Pure.
//!
//! Follows the parser that Kubernetes uses (sigs.k8s.io/yaml over go-yaml v2, `resolve.go`), which differs from both
//! YAML 1.2 and the YAML 1.1 standard: `0644` is octal and `yes` is a boolean, but `1:30` is a string.

use serde_json::{Number, Value};

use crate::types::decimal::parse_decimal;

/// Resolves a plain scalar without a tag.
pub(super) fn plain(text: &str) -> Scalar {
    if let Some(word_value) = word(text) {
        return word_value;
    }
    match text.bytes().next() {
        Some(b'.') => parse_decimal(text).map_or(Scalar::String, Scalar::Float),
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let digits: String = text.chars().filter(|c| *c != '_').collect();
            if let Some(number) = integer(&digits) {
                Scalar::Integer(number)
            } else {
                parse_decimal(&digits).map_or(Scalar::String, Scalar::Float)
            }
        }
        _ => Scalar::String,
    }
}

/// A resolved scalar. The value of a string is its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(Number),
    Float(f64),
    /// `.inf` or `.nan`, which JSON cannot express.
    NotFinite,
    String,
}

impl Scalar {
    /// The short form of its tag.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Integer(_) => "!!int",
            Self::Float(_) | Self::NotFinite => "!!float",
            Self::String => "!!str",
        }
    }

    /// The JSON value; `None` if JSON cannot express it.
    pub(super) fn into_value(self, text: &str) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Bool(value) => Some(Value::Bool(value)),
            Self::Integer(number) => Some(Value::Number(number)),
            Self::Float(number) => float_number(number).map(Value::Number),
            Self::NotFinite => None,
            Self::String => Some(Value::String(text.to_owned())),
        }
    }
}

fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" | ".nan" | ".NaN"
        | ".NAN" => Scalar::NotFinite,
        _ => return None,
    })
}

/// An integer: decimal, `0x` hexadecimal, `0b` binary, and octal with `0o` or just a leading `0`.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0_i64.checked_sub_unsigned(magnitude).map(Number::from) } else { Some(Number::from(magnitude)) }
}

/// A float as Go writes it into JSON: `1.0` and `1e3` become integers.
pub(super) fn float_number(number: f64) -> Option<Number> {
    // Beyond 2^53 floats are not exact integers; they stay floats.
    const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= MAX_EXACT_FLOAT {
        #[expect(clippy::cast_possible_truncation, reason = "a whole number within 2^53")]
        return Some(Number::from(number as i64));
    }
    Number::from_f64(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Value) {
        assert_eq!(plain(text).into_value(text), Some(expected), "{text}");
    }

    #[test]
    fn plain_words_resolve_as_in_kubernetes() {
        for text in ["", "~", "null", "Null", "NULL"] {
            check(text, Value::Null);
        }
        for text in ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"] {
            check(text, json!(true));
        }
        for text in ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"] {
            check(text, json!(false));
        }
        for text in ["yEs", "oN", "nUll", "nil", "none", "t", "f", "<<", "="] {
            check(text, json!(text));
        }
    }

    #[test]
    fn integers_have_four_bases_and_underscores() {
        check("0", json!(0));
        check("12", json!(12));
        check("-12", json!(-12));
        check("+12", json!(12));
        check("1_000", json!(1000));
        check("1_", json!(1));
        check("0644", json!(420));
        check("0400", json!(256));
        check("-010", json!(-8));
        check("0o644", json!(420));
        check("0O17", json!(15));
        check("0x1F", json!(31));
        check("-0x1f", json!(-31));
        check("0X_f_f", json!(255));
        check("0b101", json!(5));
        check("-0b11", json!(-3));
        check("18446744073709551615", json!(u64::MAX));
        check("-9223372036854775808", json!(i64::MIN));
        check("18446744073709551616", json!(18446744073709551616.0));
    }

    #[test]
    fn floats_need_a_digit_and_whole_ones_become_integers() {
        check("0.5", json!(0.5));
        check(".5", json!(0.5));
        check("-.5", json!(-0.5));
        check("1.", json!(1));
        check("1.0", json!(1));
        check("1e3", json!(1000));
        check("1E+3", json!(1000));
        check("25e-1", json!(2.5));
        check("08", json!(8));
        check("0.1_5", json!(0.15));
        check("1e21", json!(1e21));
    }

    #[test]
    fn near_numbers_are_strings() {
        for text in [
            "1:30",
            "2001-01-01",
            "1.2.3",
            "1.1.1.1",
            "0x",
            "0xg",
            "0b2",
            "0o8",
            "+",
            "-",
            "--1",
            "-+1",
            "1e",
            "1e+",
            "e3",
            ".",
            ".e3",
            "..1",
            "1m",
            "1Gi",
            "1e999",
            "-1e999",
            "_1",
            "0x1p3",
            "+inf",
            "inf",
            "nan",
            "１",
            "1 2",
            "-x",
        ] {
            check(text, json!(text));
        }
    }

    #[test]
    fn infinity_and_nan_have_no_json_value() {
        for text in [".inf", "-.INF", "+.Inf", ".nan", ".NaN"] {
            assert_eq!(plain(text).into_value(text), None, "{text}");
        }
    }
}
