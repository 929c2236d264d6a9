//! The metrics, stats and configuration pages, for any server. Pure.

use crate::types::metrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Cadvisor,
    /// The effective configuration.
    Configuration,
    Metrics,
    Probes,
    Resource,
    Summary {
        only_cpu_and_memory: bool,
    },
}

impl Page {
    /// `None` for any other path.
    pub(super) fn of(path: &str, query: &str) -> Option<Self> {
        match path {
            "/configz" => Some(Self::Configuration),
            "/metrics" => Some(Self::Metrics),
            "/metrics/cadvisor" => Some(Self::Cadvisor),
            "/metrics/probes" => Some(Self::Probes),
            "/metrics/resource" => Some(Self::Resource),
            "/stats/summary" | "/stats/summary/" => {
                let values = query.split('&').filter_map(|part| part.strip_prefix("only_cpu_and_memory="));
                // Parsed like a Go bool; anything invalid is false.
                let only = |value: &str| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True");
                Some(Self::Summary { only_cpu_and_memory: { values }.next().is_some_and(only) })
            }
            _ => None,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Cadvisor | Self::Metrics | Self::Probes | Self::Resource => metrics::METRICS_CONTENT_TYPE,
            Self::Configuration | Self::Summary { .. } => "application/json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_selected_by_path_and_summary_may_be_limited() {
        let summary = |only_cpu_and_memory| Some(Page::Summary { only_cpu_and_memory });
        for (query, only) in [
            ("", false),
            ("only_cpu_and_memory=true", true),
            ("a=b&only_cpu_and_memory=1", true),
            ("only_cpu_and_memory=yes", false),
        ] {
            assert_eq!(Page::of("/stats/summary", query), summary(only), "{query}");
        }
        assert_eq!(Page::of("/metrics/resource", "x"), Some(Page::Resource));
        assert_eq!(Page::of("/metrics", ""), Some(Page::Metrics));
        assert_eq!(Page::of("/metrics/x", ""), None);
    }
}
