//! Resource quantities: `100m`, `1.5Gi`, `1e3`. Exact to a billionth. Pure.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};

/// A quantity: at most 2^63-1 in magnitude, rounded away from zero to a billionth.
///
/// Comparison ignores the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How a quantity is written: the family of its suffix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `Ki`, `Mi`, `Gi`: powers of 1024.
    BinarySi,
    /// `e3`, `E-6`: a power of ten.
    DecimalExponent,
    /// `m`, `k`, `M`: powers of 1000, and no suffix at all.
    #[default]
    DecimalSi,
}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The cap of 2^63-1 whole units.
const MAX_QUANTITY_NANOS: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    pub fn new(amount: i64, format: Format) -> Self {
        Self { nanos: i128::from(amount) * NANOS_PER_UNIT, format }
    }

    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: i128::from(milli) * NANOS_PER_MILLI, format }
    }

    /// The amount in whole units, rounded away from zero.
    pub fn value(self) -> i64 {
        divide_up(self.nanos, NANOS_PER_UNIT)
    }

    /// The amount in thousandths, rounded away from zero and clamped to `i64`.
    pub fn milli_value(self) -> i64 {
        divide_up(self.nanos, NANOS_PER_MILLI)
    }

    /// The exact amount in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    pub fn format(self) -> Format {
        self.format
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum, in the format of `self` (of `other`, if `self` is zero).
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos: (self.nanos + other.nanos).clamp(-MAX_QUANTITY_NANOS, MAX_QUANTITY_NANOS), format }
    }

    /// The difference, in the format of `self` (of `other`, if `self` is zero).
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, format: other.format })
    }
}

fn divide_up(nanos: i128, unit: i128) -> i64 {
    let rest = nanos % unit;
    let whole = nanos / unit + rest.signum();
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The error of parsing a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    Number,
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "expected a quantity such as 100m, 1.5Gi or 1e3",
            Self::Suffix => {
                "expected a quantity that ends in n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or e<number>"
            }
        })
    }
}

impl std::error::Error for QuantityError {}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError::Number);
        }
        let (scale, mut format) = scale_of(suffix).ok_or(QuantityError::Suffix)?;
        let nanos = match scale {
            Scale::Ten(exponent) => scaled(whole, fraction, exponent, 0),
            Scale::Two(shift) => scaled(whole, fraction, 0, shift),
        };
        // The binary suffixes cannot express an amount below one.
        if format == Format::BinarySi && nanos > 0 && nanos < NANOS_PER_UNIT {
            format = Format::DecimalSi;
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

#[derive(Clone, Copy)]
enum Scale {
    Ten(i32),
    Two(u32),
}

fn scale_of(suffix: &str) -> Option<(Scale, Format)> {
    let ten = |exponent| Some((Scale::Ten(exponent), Format::DecimalSi));
    let two = |shift| Some((Scale::Two(shift), Format::BinarySi));
    match suffix {
        "n" => ten(-9),
        "u" => ten(-6),
        "m" => ten(-3),
        "" => ten(0),
        "k" => ten(3),
        "M" => ten(6),
        "G" => ten(9),
        "T" => ten(12),
        "P" => ten(15),
        "E" => ten(18),
        "Ki" => two(10),
        "Mi" => two(20),
        "Gi" => two(30),
        "Ti" => two(40),
        "Pi" => two(50),
        "Ei" => two(60),
        suffix => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            Some((Scale::Ten(digits.parse().ok()?), Format::DecimalExponent))
        }
    }
}

/// `whole.fraction * 10^exponent * 2^shift` in billionths, rounded up and capped.
fn scaled(integer: &str, fraction: &str, exponent: i32, shift: u32) -> i128 {
    const CAP: u128 = i64::MAX.unsigned_abs() as u128;
    let point = i64::try_from(integer.len()).unwrap_or(i64::MAX).saturating_add(i64::from(exponent));
    let mut left = 0_u128;
    // The first 20 digits after the point: still exact when multiplied by 2^60.
    let mut right = 0_u128;
    let mut more = false;
    let mut digit_position = point;
    for digit in integer.bytes().chain(fraction.bytes()).map(|byte| u128::from(byte.saturating_sub(b'0'))) {
        if digit_position > 0 {
            left = (left * 10 + digit).min(CAP);
        } else if let Ok(power @ 0..=19) = u32::try_from(digit_position + 19) {
            right += digit * 10_u128.pow(power);
        } else {
            more |= digit != 0;
        }
        digit_position -= 1;
    }
    // Trailing zeros from the exponent.
    while digit_position > 0 && left != 0 && left < CAP {
        left = (left * 10).min(CAP);
        digit_position -= 1;
    }
    let left = (left << shift).min(CAP) * NANOS_PER_UNIT.unsigned_abs();
    let right = (right << shift).div_ceil(10_u128.pow(20 - 9)) + u128::from(more);
    i128::try_from(left + right).unwrap_or(MAX_QUANTITY_NANOS).min(MAX_QUANTITY_NANOS)
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, and the largest suffix that allows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        if self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANOS_PER_UNIT {
            let (number, suffix) =
                reduced(self.nanos / NANOS_PER_UNIT, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
            return write!(f, "{number}{suffix}");
        }
        let suffixes = match self.format {
            Format::BinarySi | Format::DecimalSi => &["n", "u", "m", "", "k", "M", "G", "T", "P", "E"],
            Format::DecimalExponent => &["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"],
        };
        let (number, suffix) = reduced(self.nanos, 1000, suffixes);
        write!(f, "{number}{suffix}")
    }
}

/// Divides `number` by `base` while that is exact; returns the quotient and its suffix.
fn reduced<'a>(mut number: i128, base: i128, suffixes: &[&'a str]) -> (i128, &'a str) {
    let mut suffix = "";
    for (index, next) in suffixes.iter().enumerate() {
        suffix = next;
        if number % base != 0 || index + 1 == suffixes.len() {
            break;
        }
        number /= base;
    }
    (number, suffix)
}

impl Decode for Quantity {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let text = match input {
            Input::Value(Value::String(text)) => text,
            // A bare number reads like the same number in quotes.
            Input::Value(Value::Number(number)) => number.to_string(),
            Input::Value(Value::Null) => return Ok(Self::ZERO),
            other => return Err(DecodeError::expected("a quantity", &other)),
        };
        text.trim().parse().map_err(|error| DecodeError::new(format_args!("{error}, found {text:?}")))
    }
}

impl Encode for Quantity {
    fn write(&self, json: &mut Json) {
        json.raw(format_args!("\"{self}\""));
    }
}

#[cfg(test)]
mod tests;
