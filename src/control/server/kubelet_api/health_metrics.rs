//! `/metrics/slis`: the results of the health checks, as k8s.io/component-base/metrics/prometheus/slis.

use super::healthz::Check;
use crate::control::server::http::{Response, Status};
use crate::types::metrics::{self, Count, Exposition, Kind, Labels, Number};

/// Counts the results that a request for `/healthz` has asked for.
pub(super) fn count(checks: &[Check]) {
    for (name, fault) in checks {
        let status = if fault.is_none() { "success" } else { "error" };
        metrics::count(Count::HealthChecks, &[name, status, HEALTHZ_CHECK_TYPE]);
    }
}

pub(super) fn page(checks: &[Check]) -> Response {
    let mut page = Exposition::default();
    let help = "[STABLE] This metric records the result of a single healthcheck.";
    page.family("kubernetes_healthcheck", Kind::Gauge, help);
    for (name, fault) in checks {
        page.sample(
            &Labels::of(&[("name", name), ("type", HEALTHZ_CHECK_TYPE)]),
            Number::Whole(u64::from(fault.is_none())),
        );
    }
    metrics::write_health_checks(&mut page);
    Response { status: Status::Ok, content_type: metrics::METRICS_CONTENT_TYPE, body: page.into_bytes() }
}

const HEALTHZ_CHECK_TYPE: &str = "healthz";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::server::kubelet_api::healthz::checks;
    use crate::types::metrics::parsed;

    #[test]
    fn page_has_each_check_and_counts_the_requests() {
        count(&checks(false));
        count(&checks(false));
        count(&checks(true));
        let text = String::from_utf8(page(&checks(true)).body).unwrap();
        let families = parsed::parse(&text);
        let now = |name| families["kubernetes_healthcheck"].value(&[("name", name), ("type", "healthz")]);
        assert_eq!((now("ping"), now("log"), now("syncloop")), (1.0, 1.0, 0.0));
        let total = |name, status| {
            families["kubernetes_healthchecks_total"].value(&[("name", name), ("status", status), ("type", "healthz")])
        };
        assert_eq!(
            (total("ping", "success"), total("syncloop", "success"), total("syncloop", "error")),
            (3.0, 2.0, 1.0)
        );
    }
}
