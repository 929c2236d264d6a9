//! TCP probes.

use std::time::Duration;

use crate::kubelet::probes::outcome::Outcome;
use crate::platform::net::Dialer;

/// Passes if a connection is established.
pub(super) async fn probe(dialer: &Dialer, host: &str, port: u16, limit: Duration) -> Outcome {
    match dialer.dial(host, port, limit).await {
        Ok(_) => Outcome::Passed,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
