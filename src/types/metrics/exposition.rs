//! Writes Prometheus' text format (exposition format 0.0.4). Pure.
//!
//! No value is a floating-point number: counts are integers, and seconds are whole nanoseconds.

use std::fmt::{self, Write as _};

/// The content type of a page.
pub(crate) const METRICS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page being written.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    /// Written before the first sample of the family; a family without samples is left out.
    head: Option<Head>,
    name: &'static str,
}

#[derive(Debug)]
struct Head {
    kind: Kind,
    help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Whole(u64),
    Signed(i64),
    /// Shown in seconds.
    Nanos(u64),
    Micros(u64),
}

/// The labels of a sample, already in text form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(String);

impl Labels {
    pub(crate) fn of(labels: &[(&str, &str)]) -> Self {
        labels.iter().fold(Self::default(), |all, (name, value)| all.with(name, value))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        self.0.push('"');
        self
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part, digits) = match *self {
            Self::Whole(number) => return write!(f, "{number}"),
            Self::Signed(number) => return write!(f, "{number}"),
            Self::Nanos(nanos) => (nanos / 1_000_000_000, nanos % 1_000_000_000, 9),
            Self::Micros(micros) => (micros / 1_000_000, micros % 1_000_000, 6),
        };
        write!(f, "{whole}")?;
        if part == 0 {
            return Ok(());
        }
        let digits = format!("{part:0digits$}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl Exposition {
    /// Begins a family. All of its samples must follow before the next family.
    pub(crate) fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) {
        self.name = name;
        self.head = Some(Head { kind, help });
    }

    pub(crate) fn sample(&mut self, labels: &Labels, value: Number) {
        self.sample_at(labels, None, value, None);
    }

    /// Writes a sample with an additional label and a timestamp in Unix milliseconds.
    pub(crate) fn sample_at(&mut self, labels: &Labels, more: Option<(&str, &str)>, value: Number, at: Option<i64>) {
        self.begin();
        self.line("", labels, more, value);
        if let Some(at) = at {
            self.text.pop();
            let _ = writeln!(self.text, " {at}");
        }
    }

    /// Writes a histogram: cumulative counts per bound, total count and sum.
    pub(crate) fn histogram(
        &mut self,
        labels: &Labels,
        buckets: impl Iterator<Item = (&'static str, u64)>,
        count: u64,
        sum: Number,
    ) {
        self.begin();
        for (bound, count) in buckets {
            self.line("_bucket", labels, Some(("le", bound)), Number::Whole(count));
        }
        self.line("_bucket", labels, Some(("le", "+Inf")), Number::Whole(count));
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, Number::Whole(count));
    }

    fn begin(&mut self) {
        if let Some(Head { kind, help }) = self.head.take() {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let name = self.name;
            let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
    }

    fn line(&mut self, suffix: &str, labels: &Labels, more: Option<(&str, &str)>, value: Number) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        if !labels.0.is_empty() || more.is_some() {
            self.text.push('{');
            self.text.push_str(&labels.0);
            if let Some((name, value)) = more {
                let comma = if labels.0.is_empty() { "" } else { "," };
                // The label is a device's name or a constant of this program.
                let _ = write!(self.text, "{comma}{}", Labels::default().with(name, value).0);
            }
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_has_one_head_and_is_omitted_when_empty() {
        let mut page = Exposition::default();
        page.family("empty", Kind::Gauge, "Nothing.");
        page.family("some_total", Kind::Counter, "Some.");
        page.sample(&Labels::default(), Number::Whole(7));
        page.sample_at(&Labels::of(&[("a", "b")]), Some(("cpu", "total")), Number::Nanos(1_500_000_000), Some(12));
        let text = "# HELP some_total Some.\n# TYPE some_total counter\nsome_total 7\n\
                    some_total{a=\"b\",cpu=\"total\"} 1.5 12\n";
        assert_eq!(String::from_utf8(page.into_bytes()).unwrap(), text);
    }

    #[test]
    fn label_values_are_escaped() {
        let labels = Labels::of(&[("a", "x\"y\\z\nw"), ("b", "\u{fc}")]);
        assert_eq!(labels.0, "a=\"x\\\"y\\\\z\\nw\",b=\"\u{fc}\"");
    }

    #[test]
    fn seconds_have_no_trailing_zeros() {
        for (number, text) in [
            (Number::Nanos(0), "0"),
            (Number::Nanos(1), "0.000000001"),
            (Number::Nanos(6_679_439_853_048), "6679.439853048"),
            (Number::Micros(2_500_000), "2.5"),
            (Number::Micros(3_000_000), "3"),
            (Number::Signed(-1), "-1"),
            (Number::Whole(u64::MAX), "18446744073709551615"),
        ] {
            assert_eq!(number.to_string(), text);
        }
    }
}
