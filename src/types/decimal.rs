//! Decimal fractions in texts. Pure.

/// A finite number of the form `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
///
/// As a number of JSON, which the program reads anyway: the standard library's parser would be 15 KB more. More than
/// fifteen digits may be rounded to the neighbour of the nearest number.
pub(crate) fn parse_decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let is_empty = whole.is_empty() && fraction.is_empty() || exponent_digits.is_empty();
    if is_empty || ![whole, fraction, exponent_digits].into_iter().all(all_digits) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let sign = if text.starts_with('-') { "-" } else { "" };
    let json = [sign, if whole.is_empty() { "0" } else { whole }, ".", fraction, "0e", exponent].concat();
    serde_json::from_str(&json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_have_the_standard_librarys_value() {
        let decimals =
            ["0", "00", "1", "10", "15.5", "0.1", "+.5", "-7.", "99.99", "1e3", "-2.5E-3", "1e+05", "007.25"];
        for text in decimals.into_iter().chain([
            "123456789012345",
            "1e22",
            "0e999999",
            "1e-999",
            "4.9e-324",
            "1.7976931348623157e308",
        ]) {
            assert_eq!(parse_decimal(text), text.parse().ok(), "{text}");
        }
        for number in 0..100_000_u32 {
            let text = format!("{}.{:03}", number / 1000, number % 1000);
            assert_eq!(parse_decimal(&text), text.parse().ok(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", ".", "-", "+-1", "1..2", "1e", "1e-", "e5", ".e5", "inf", "nan", "1_0", "0x1", " 1", "1 ", "1e999",
            "-1e400",
        ] {
            assert_eq!(parse_decimal(text), None, "{text}");
        }
    }
}
