//! The settings of a cgroup, and the conversions from requests and limits. Pure.

use std::f64::consts::LOG10_2;

/// The settings of a group; `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) cpu_weight: Option<u64>,
    pub(crate) cpu_max: Option<CpuMax>,
    pub(crate) memory_max: Option<Limit>,
    /// Bytes that are never reclaimed.
    pub(crate) memory_min: Option<u64>,
    /// Bytes that are reclaimed last.
    pub(crate) memory_low: Option<u64>,
    pub(crate) pids_max: Option<Limit>,
    /// Limits by page size in bytes.
    pub(crate) huge_pages: Vec<(u64, Limit)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    At(u64),
    /// No limit.
    Max,
}

/// CPU time per period, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuMax {
    pub(crate) quota: Limit,
    pub(crate) period: u64,
}

impl Values {
    /// The files and their values.
    pub(crate) fn files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        let mut push = |file: &str, value: String| files.push((file.to_owned(), value));
        if let Some(weight) = self.cpu_weight {
            push("cpu.weight", weight.to_string());
        }
        if let Some(max) = self.cpu_max {
            push("cpu.max", format!("{} {}", max.quota, max.period));
        }
        if let Some(max) = self.memory_max {
            push("memory.max", max.to_string());
        }
        for (file, bytes) in [("memory.min", self.memory_min), ("memory.low", self.memory_low)] {
            if let Some(bytes) = bytes {
                push(file, bytes.to_string());
            }
        }
        if let Some(max) = self.pids_max {
            push("pids.max", max.to_string());
        }
        for (size, limit) in &self.huge_pages {
            push(&format!("hugetlb.{}.max", page_size_name(*size)), limit.to_string());
        }
        files
    }
}

impl Values {
    /// The higher of each limit, so that both the old and the new usage fit.
    pub(crate) fn widest(self, other: &Self) -> Self {
        let quota = |max: &CpuMax, period: u64| match max.quota {
            Limit::Max => Limit::Max,
            Limit::At(quota) => {
                let scaled = u128::from(quota) * u128::from(period) / u128::from(max.period.max(1));
                Limit::At(u64::try_from(scaled).unwrap_or(u64::MAX))
            }
        };
        let cpu_max = match (self.cpu_max, &other.cpu_max) {
            (Some(current), Some(other)) => {
                Some(CpuMax { quota: current.quota.max(quota(other, current.period)), ..current })
            }
            (current, _) => current,
        };
        let wider = |current: Option<Limit>, other: Option<Limit>| {
            current.map(|current| other.map_or(current, |other| current.max(other)))
        };
        Self {
            cpu_max,
            memory_max: wider(self.memory_max, other.memory_max),
            pids_max: wider(self.pids_max, other.pids_max),
            ..self
        }
    }
}

impl CpuMax {
    /// Parses `cpu.max`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (quota, period) = text.trim().split_once(' ')?;
        Some(Self { quota: Limit::parse(quota)?, period: period.parse().ok()? })
    }
}

impl Limit {
    /// Parses a file with one limit.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "max" => Some(Self::Max),
            number => number.parse().ok().map(Self::At),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::At(limit) => write!(f, "{limit}"),
        }
    }
}

/// CPU shares of cgroup v1, which the kubelet still computes with: 1024 per CPU, within the kernel's bounds.
pub(crate) fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(MIN_CPU_SHARES, 262_144)
}

/// Converts shares to `cpu.weight` linearly between the bounds (`getCPUWeight` in pkg/kubelet/cm).
pub(crate) fn cpu_weight(shares: i64) -> u64 {
    let above = shares.clamp(MIN_CPU_SHARES, 262_144) - MIN_CPU_SHARES;
    u64::try_from(1 + above * 9999 / 262_142).unwrap_or(1)
}

/// Whether a runtime may have made `weight` from these shares: by the linear formula, or as newer runtimes do by a
/// curve that maps the default 1024 to 100 (`ConvertCPUSharesToCgroupV2Value` in opencontainers/cgroups).
pub(crate) fn is_weight_of(weight: u64, shares: i64) -> bool {
    let is_curved = match (i32::try_from(shares), u32::try_from(weight)) {
        (Ok(shares @ 3..=262_143), Ok(weight)) => {
            let octaves = f64::from(shares).log2();
            // The weight is ten to this power, rounded up. Powers would bring tables of 6 KB.
            let exponent = octaves * (octaves + 125.0) / 612.0 - 7.0 / 34.0;
            let log10 = |number: f64| number.max(f64::MIN_POSITIVE).log2() * LOG10_2;
            (log10(f64::from(weight) - 1.001)..log10(f64::from(weight) + 0.001)).contains(&exponent)
        }
        _ => false,
    };
    is_curved || weight == cpu_weight(shares)
}

/// The quota in microseconds per period; 0 means no limit. The kernel's minimum is 1 ms.
pub(crate) fn cpu_quota(milli: i64, period: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(period) / 1000).max(1000) }
}

/// A page size as the hugetlb controller's files spell it: `64KB`, `2MB`, `1GB`.
pub(crate) fn page_size_name(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}GB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}MB", bytes >> 20),
        bytes => format!("{}KB", bytes >> 10),
    }
}

/// The kernel's minimum.
pub(crate) const MIN_CPU_SHARES: i64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quotas_stay_within_kernel_bounds() {
        for (milli, shares, quota) in
            [(0, 2, 0), (1, 2, 1000), (10, 10, 1000), (100, 102, 10_000), (1500, 1536, 150_000)]
        {
            assert_eq!((cpu_shares(milli), cpu_quota(milli, 100_000)), (shares, quota), "{milli}m");
        }
        assert_eq!(cpu_shares(i64::MAX), 262_144);
    }

    #[test]
    fn weights_are_linear_between_the_bounds() {
        for (shares, weight) in [(i64::MIN, 1), (2, 1), (102, 4), (1024, 39), (262_144, 10_000), (i64::MAX, 10_000)] {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
    }

    #[test]
    fn weights_match_either_formula() {
        for (weight, shares, is) in [
            (4, 102, true),
            (17, 102, true),
            (5, 102, false),
            (39, 1024, true),
            (100, 1024, true),
            (101, 1023, false),
            (1, 2, true),
            (2, 2, false),
            (10_000, 262_144, true),
        ] {
            assert_eq!(is_weight_of(weight, shares), is, "{weight} of {shares}");
        }
    }

    #[test]
    fn all_shares_have_the_weight_above_the_curve() {
        for shares in 3..=262_143 {
            let octaves = f64::from(shares).log2();
            let curved = 10f64.powf(octaves * (octaves + 125.0) / 612.0 - 7.0 / 34.0);
            let above: u64 = format!("{}", curved.ceil()).parse().unwrap();
            assert!(is_weight_of(above, shares.into()), "{shares}");
            // Within a thousandth both are right.
            let is_near = (curved - curved.round()).abs() <= 0.001;
            for odd in [above - 1, above + 1] {
                let is_linear = odd == cpu_weight(shares.into());
                assert!(is_near || is_linear || !is_weight_of(odd, shares.into()), "{odd} of {shares}");
            }
        }
    }

    #[test]
    fn kernel_output_is_parsed() {
        let max = CpuMax { quota: Limit::At(25_000), period: 100_000 };
        assert_eq!(CpuMax::parse("25000 100000\n"), Some(max));
        assert_eq!(CpuMax::parse("max 100000\n").map(|max| max.quota), Some(Limit::Max));
        assert_eq!((CpuMax::parse("25000"), CpuMax::parse("x 1"), Limit::parse("-1")), (None, None, None));
    }

    #[test]
    fn widest_keeps_the_higher_limit() {
        let of = |quota, memory| Values {
            cpu_weight: Some(7),
            cpu_max: Some(CpuMax { quota, period: 100_000 }),
            memory_max: Some(memory),
            ..Values::default()
        };
        let wide = of(Limit::At(20_000), Limit::At(4096)).widest(&Values {
            cpu_max: Some(CpuMax { quota: Limit::At(30_000), period: 50_000 }),
            memory_max: Some(Limit::At(1)),
            cpu_weight: Some(1),
            ..Values::default()
        });
        assert_eq!(wide, of(Limit::At(60_000), Limit::At(4096)));
        assert_eq!(of(Limit::At(1), Limit::At(1)).widest(&of(Limit::Max, Limit::Max)), of(Limit::Max, Limit::Max));
    }

    #[test]
    fn only_set_values_have_files() {
        assert!(Values::default().files().is_empty());
        let values = Values {
            cpu_weight: Some(4),
            cpu_max: Some(CpuMax { quota: Limit::Max, period: 100_000 }),
            memory_max: Some(Limit::At(4096)),
            memory_min: Some(2048),
            memory_low: Some(0),
            pids_max: Some(Limit::At(7)),
            huge_pages: vec![(2 << 20, Limit::At(0)), (1 << 30, Limit::Max)],
        };
        let files = values.files();
        let files: Vec<(&str, &str)> = files.iter().map(|(file, value)| (file.as_str(), value.as_str())).collect();
        let expected = [
            ("cpu.weight", "4"),
            ("cpu.max", "max 100000"),
            ("memory.max", "4096"),
            ("memory.min", "2048"),
            ("memory.low", "0"),
            ("pids.max", "7"),
            ("hugetlb.2MB.max", "0"),
            ("hugetlb.1GB.max", "max"),
        ];
        assert_eq!(files, expected);
    }
}
