//! HTTP probes: the outcome follows from the status code.

use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::probes::outcome::{ErrorResult, Outcome};
use crate::platform::net::{Dialer, GetError, GetResponse, Headers, Purpose, Url};
use crate::types::api::{Container, HttpGetAction};

pub(super) async fn probe(
    dialer: &Dialer,
    container: &Container,
    action: &HttpGetAction,
    ip: Option<IpAddr>,
    limit: Duration,
) -> Outcome {
    let port = match container.port(&action.port) {
        Ok(port) => port,
        Err(error) => return Outcome::unknown(error),
    };
    let host = super::host(&action.host, ip);
    let url = Url::new(action.scheme, &host, port, &action.path);
    let headers = Headers::new(&action.http_headers, Purpose::Probe);
    outcome(&url, dialer.get(&url, &headers, limit).await)
}

fn outcome(url: &Url, response: Result<GetResponse, GetError>) -> Outcome {
    match response {
        Ok(GetResponse { status: 200..=299, .. }) => Outcome::Passed,
        Ok(GetResponse { status: 300..=399, body, .. }) => {
            let body = String::from_utf8_lossy(&body);
            Outcome::Warned(format!("Probe terminated redirects, Response body: {body}"))
        }
        Ok(GetResponse { status, .. }) => Outcome::Failed(format!("HTTP probe failed with statuscode: {status}")),
        // The response was not complete.
        Err(GetError::Body(error)) => Outcome::Errored { state: ErrorResult::Failure, message: error.to_string() },
        Err(error) => Outcome::Failed(format!("Get {:?}: {error}", url.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::UriScheme;

    #[test]
    fn status_below_400_passes_and_unfollowed_redirect_warns() {
        let url = Url::new(UriScheme::Http, "10.88.1.94", 81, "/live");
        let of = |status, body: &str| outcome(&url, Ok(GetResponse { status, body: body.into() }));
        for status in [200, 204, 299] {
            assert_eq!(of(status, "fine"), Outcome::Passed);
        }
        let warned = Outcome::Warned("Probe terminated redirects, Response body: moved".to_owned());
        for status in [300, 302, 399] {
            assert_eq!(of(status, "moved"), warned);
        }
        for status in [400, 404, 500, 199] {
            assert_eq!(of(status, ""), Outcome::Failed(format!("HTTP probe failed with statuscode: {status}")));
        }
        let closed = Outcome::Failed("Get \"http://10.88.1.94:81/live\": EOF".to_owned());
        assert_eq!(outcome(&url, Err(GetError::Closed)), closed);
    }
}
