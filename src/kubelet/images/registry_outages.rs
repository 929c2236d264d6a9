//! Unreachable registries: detected by pull errors, and remembered for a while. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// Whether a pull failed because the registry could not be reached, so that neither the image nor the permission was
/// checked. The texts are those of Go's network stack, containerd and CRI-O.
///
/// `error` quotes the image's name, which a pod chooses, so each text has a blank that no name can have.
pub(super) fn is_unreachable(error: &str) -> bool {
    let error = [" ", &error.to_ascii_lowercase()].concat();
    !DENIALS.iter().any(|text| error.contains(text)) && OUTAGES.iter().any(|text| error.contains(text))
}

/// The registry has answered with a denial, whatever else the text contains.
const DENIALS: &[&str] =
    &["401 unauthorized", "403 forbidden", "access denied", "authorization failed", "insufficient_scope"];

/// An overloaded registry counts, too: its answer (429, 502 to 504) says nothing about the image.
const OUTAGES: &[&str] = &[
    "bad gateway",
    "connection refused",
    "connection reset by peer",
    "connection timed out",
    "context deadline exceeded",
    "code = deadlineexceeded",
    "gateway timeout",
    "i/o timeout",
    "network is down",
    "network is unreachable",
    "no route to host",
    "no such host",
    " registryunavailable: ",
    "server misbehaving",
    "service unavailable",
    "temporary failure in name resolution",
    "timeout awaiting response headers",
    "tls handshake timeout",
    "too many requests",
    " toomanyrequests: ",
    "unexpected eof",
    ": eof",
];

const FIRST_REGISTRY_BACKOFF: Duration = Duration::from_secs(10);
const MAX_REGISTRY_BACKOFF: Duration = Duration::from_secs(300);
/// Limit of the remembered registries, whose names pods choose. The registry that may be asked again the soonest makes
/// room for another.
const MAX_REGISTRIES: usize = 64;
/// The longest DNS name, with a port. A longer name is no registry's.
const MAX_REGISTRY_NAME_BYTES: usize = 253 + 6;

/// The registries that were unreachable recently, so that not every pod waits for a timeout: present images are used
/// without asking until the next attempt is due.
#[derive(Debug, Default)]
pub(super) struct Outages {
    registries: SortedMap<String, Outage>,
}

#[derive(Debug)]
struct Outage {
    waits: Backoff,
    until: Instant,
}

impl Outages {
    /// Whether a pull from `registry` started now would most likely fail.
    pub(super) fn lasts(&self, registry: &str, now: Instant) -> bool {
        self.registries.get(registry).is_some_and(|outage| now < outage.until)
    }

    /// Records a failure. Several pulls in progress at the same time count as one.
    pub(super) fn failed(&mut self, registry: &str, now: Instant) {
        if self.lasts(registry, now) || registry.len() > MAX_REGISTRY_NAME_BYTES {
            return;
        }
        if self.registries.len() >= MAX_REGISTRIES && !self.registries.contains_key(registry) {
            self.forget_soonest();
        }
        let outage = self.registries.entry(registry.to_owned()).or_insert_with(|| Outage {
            waits: Backoff::new(FIRST_REGISTRY_BACKOFF, MAX_REGISTRY_BACKOFF),
            until: now,
        });
        outage.until = now + outage.waits.next_wait();
    }

    fn forget_soonest(&mut self) {
        let soonest = self.registries.iter().min_by_key(|(_, outage)| outage.until).map(|(name, _)| name.clone());
        soonest.map(|name| self.registries.remove(&name));
    }

    /// The registry has answered.
    pub(super) fn end_outage(&mut self, registry: &str) {
        self.registries.remove(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_errors_differ_from_registry_denials() {
        let head = "failed to pull and unpack image \"r.io/a:1\": failed to resolve reference \"r.io/a:1\": ";
        for error in [
            "failed to do request: Head \"https://r.io/v2/a/manifests/1\": dial tcp: lookup r.io on 192.0.2.53:53: read \
             udp 10.77.0.1:37827->192.0.2.53:53: i/o timeout",
            "failed to do request: Head \"https://r.io/v2/a/manifests/1\": dial tcp 192.0.2.7:443: connect: connection \
             refused",
            "failed to do request: Head \"https://r.io/v2/a/manifests/1\": dial tcp: lookup r.io: no such host",
            "failed to do request: Head \"https://r.io/v2/a/manifests/1\": net/http: TLS handshake timeout",
            "failed to do request: Head \"https://r.io/v2/a/manifests/1\": EOF",
            "unexpected status from HEAD request to https://r.io/v2/a/manifests/1: 503 Service Unavailable",
            "unexpected status code [manifests 1]: 429 Too Many Requests",
        ] {
            assert!(is_unreachable(&[head, error].concat()), "{error}");
        }
        assert!(is_unreachable("RegistryUnavailable: pinging container registry"));
        assert!(is_unreachable("rpc error: code = DeadlineExceeded desc = context deadline exceeded"));
        for error in [
            "r.io/a:1: not found",
            "pull access denied, repository does not exist or may require authorization: server message: \
             insufficient_scope: authorization failed",
            "unexpected status from HEAD request to https://r.io/v2/a/manifests/1: 401 Unauthorized",
            "unexpected status from HEAD request to https://r.io/v2/a/manifests/1: 403 Forbidden",
            "failed commit on ref \"layer-sha256:1\": unexpected commit digest sha256:2, expected sha256:1",
            "failed to fetch oauth token: unexpected status: 401 Unauthorized: no such host",
            "x509: certificate signed by unknown authority",
            "pull QPS exceeded",
        ] {
            assert!(!is_unreachable(&[head, error].concat()), "{error}");
        }
    }

    #[test]
    fn name_of_image_is_no_outage() {
        for name in ["toomanyrequests", "deadlineexceeded", "registryunavailable", "eof"] {
            for error in [
                format!("failed to resolve reference \"r.io/a:{name}\": r.io/a:{name}: not found"),
                format!("failed to resolve reference \"{name}:5000/{name}:{name}\": not found"),
                format!("reading manifest {name} in r.io/{name}: manifest unknown"),
                format!("404 Not Found: https://r.io/v2/{name}/manifests/{name}"),
            ] {
                assert!(!is_unreachable(&error), "{error}");
            }
        }
        assert!(is_unreachable("429: server message: toomanyrequests: You have reached your pull rate limit"));
    }

    #[test]
    fn unreachable_registry_is_asked_less_and_less_often() {
        let mut outages = Outages::default();
        let mut now = Instant::now();
        assert!(!outages.lasts("r.io", now));
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            outages.failed("r.io", now);
            // Pulls that were in progress add nothing.
            outages.failed("r.io", now + Duration::from_secs(seconds - 1));
            assert!(outages.lasts("r.io", now + Duration::from_secs(seconds - 1)));
            now += Duration::from_secs(seconds);
            assert!(!outages.lasts("r.io", now));
        }
        assert!(!outages.lasts("q.io", now));
    }

    #[test]
    fn answer_ends_the_outage() {
        let mut outages = Outages::default();
        let now = Instant::now();
        outages.failed("r.io", now);
        outages.end_outage("r.io");
        assert!(!outages.lasts("r.io", now));
        outages.failed("r.io", now);
        assert!(!outages.lasts("r.io", now + Duration::from_secs(11)));
    }

    #[test]
    fn names_of_registries_are_bounded_and_the_longest_outage_stays() {
        let mut outages = Outages::default();
        let mut now = Instant::now();
        for _ in 0..6 {
            outages.failed("r.io", now);
            now += Duration::from_secs(100);
        }
        outages.failed("r.io", now);
        for number in 0..1000 {
            outages.failed(&format!("x{number}.example"), now);
        }
        assert!(outages.registries.len() <= 64, "{}", outages.registries.len());
        assert!(outages.lasts("r.io", now + Duration::from_secs(299)));
        assert!(outages.lasts("x999.example", now));
        outages.failed(&"x".repeat(1000), now);
        assert!(outages.registries.keys().all(|name| name.len() < 1000));
    }
}
