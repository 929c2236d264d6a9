//! Pressure stall information, of the machine and of control groups. Pure.
//!
//! A parser of our own: the crate fails where `full` is missing, as for the CPU before Linux 5.13, slices lines by
//! number, and has shares as floating-point numbers.

/// A file below `pressure`, or of a control group as `memory.pressure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// Some of the tasks waited.
    pub(crate) some: Stall,
    /// All of them waited; kernels before 5.13 have no such line for the CPU.
    pub(crate) full: Option<Stall>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stall {
    /// Shares of the last 10, 60 and 300 seconds, in hundredths of a percent.
    pub(crate) avg10_percent_hundredths: u32,
    pub(crate) avg60_percent_hundredths: u32,
    pub(crate) avg300_percent_hundredths: u32,
    pub(crate) total_usec: u64,
}

impl Pressure {
    pub(crate) fn parse(text: &str) -> Self {
        let mut pressure = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("some", rest)) => pressure.some = Stall::parse(rest),
                Some(("full", rest)) => pressure.full = Some(Stall::parse(rest)),
                _ => {}
            }
        }
        pressure
    }
}

impl Stall {
    fn parse(fields: &str) -> Self {
        let mut stall = Self::default();
        for (key, value) in fields.split(' ').filter_map(|field| field.split_once('=')) {
            match key {
                "avg10" => stall.avg10_percent_hundredths = hundredths(value),
                "avg60" => stall.avg60_percent_hundredths = hundredths(value),
                "avg300" => stall.avg300_percent_hundredths = hundredths(value),
                "total" => stall.total_usec = value.trim().parse().unwrap_or(0),
                _ => {}
            }
        }
        stall
    }
}

/// `12.34` without the point; the kernel writes two digits after it.
fn hundredths(text: &str) -> u32 {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u32 = whole.parse().unwrap_or(0);
    let part = match part.parse::<u32>() {
        Ok(tenths) if part.len() == 1 => tenths * 10,
        Ok(hundredths) if part.len() == 2 => hundredths,
        Ok(_) | Err(_) => 0,
    };
    whole.saturating_mul(100).saturating_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_time_are_read_without_floating_point() {
        for (text, expected) in [("0.00", 0), ("12.34", 1234), ("100.00", 10_000), ("1.5", 150), ("7", 700), ("x", 0)] {
            assert_eq!(hundredths(text), expected, "{text}");
        }
        let text = "some avg10=0.12 avg60=3.00 avg300=0.01 total=123456\n";
        let pressure = Pressure::parse(text);
        assert_eq!((pressure.some.avg60_percent_hundredths, pressure.some.total_usec), (300, 123_456));
        assert_eq!(pressure.full, None);
    }
}
