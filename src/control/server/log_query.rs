//! Parses the query of `/containerLogs/...?...`. Pure.

use std::time::Duration;

use crate::kubelet::logs::{LogRequest, LogStream};
use crate::types::timestamp::Timestamp;

/// A request for a container's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogQuery {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) previous: bool,
    pub(crate) request: LogRequest,
}

/// Parses `/containerLogs/<namespace>/<pod>/<container>` and its query, whose parameters are those of v1.PodLogOptions.
/// `None` for any other path.
pub(super) fn parse(path: &str, query: &str, now: Timestamp) -> Option<Result<LogQuery, String>> {
    let mut parts = path.strip_prefix("/containerLogs/")?.split('/');
    let (Some(namespace), Some(pod), Some(container), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let mut parsed = LogQuery {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        container: container.to_owned(),
        previous: false,
        request: LogRequest::default(),
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let Err(expected) = take(&mut parsed, key, value, now) {
            return Some(Err(format!("{key}: expected {expected}, found {value:?}")));
        }
    }
    // As upstream.
    if parsed.request.stream.is_some() && parsed.request.tail.is_some() {
        return Some(Err("stream: not supported together with tailLines".to_owned()));
    }
    Some(Ok(parsed))
}

fn take(parsed: &mut LogQuery, key: &str, value: &str, now: Timestamp) -> Result<(), &'static str> {
    let request = &mut parsed.request;
    match key {
        "follow" => request.follow = truth(value)?,
        "previous" => parsed.previous = truth(value)?,
        "timestamps" => request.timestamps = truth(value)?,
        "tailLines" => request.tail = Some(value.parse().map_err(|_| "a number")?),
        "limitBytes" => request.limit_bytes = Some(value.parse().map_err(|_| "a number")?),
        "sinceSeconds" => {
            let seconds: u32 = value.parse().map_err(|_| "a number of seconds")?;
            request.since = Some(now.checked_sub(Duration::from_secs(seconds.into())).unwrap_or(Timestamp::MIN));
        }
        "sinceTime" => {
            let time = value.replace("%3A", ":").replace("%3a", ":").replace("%2B", "+");
            request.since = Some(time.parse().map_err(|_| "a time such as 2026-01-02T15:04:05Z")?);
        }
        "stream" => {
            request.stream = match value {
                "" | "All" => None,
                "Stdout" => Some(LogStream::Stdout),
                "Stderr" => Some(LogStream::Stderr),
                _ => return Err("All, Stdout or Stderr"),
            };
        }
        // Like any server, ignores unknown parameters.
        _ => {}
    }
    Ok(())
}

fn truth(value: &str) -> Result<bool, &'static str> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("true or false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str, query: &str) -> Option<Result<LogQuery, String>> {
        parse(path, query, Timestamp::from_second(100).unwrap())
    }

    #[test]
    fn every_option_is_read() {
        let query = "follow=true&previous&timestamps=1&tailLines=7&limitBytes=9&sinceSeconds=40&other=x";
        let found = parsed("/containerLogs/default/web/main", query).unwrap().unwrap();
        let request = LogRequest {
            follow: true,
            tail: Some(7),
            since: Some(Timestamp::from_second(60).unwrap()),
            timestamps: true,
            limit_bytes: Some(9),
            stream: None,
        };
        let expected = LogQuery {
            namespace: "default".to_owned(),
            pod: "web".to_owned(),
            container: "main".to_owned(),
            previous: true,
            request,
        };
        assert_eq!(found, expected);
        let since = parsed("/containerLogs/d/w/m", "sinceTime=1970-01-01T01%3A00%3A01%2B01:00").unwrap().unwrap();
        assert_eq!(since.request.since, Some(Timestamp::from_second(1).unwrap()));
    }

    #[test]
    fn one_stream_may_be_chosen() {
        let stream = |query: &str| parsed("/containerLogs/d/w/m", query).unwrap().map(|query| query.request.stream);
        assert_eq!(stream("stream=Stderr"), Ok(Some(LogStream::Stderr)));
        assert_eq!(stream("stream=Stdout"), Ok(Some(LogStream::Stdout)));
        assert_eq!(stream("stream=All&tailLines=3"), Ok(None));
        assert!(stream("stream=Stdout&tailLines=3").is_err());
    }

    #[test]
    fn invalid_values_are_named_in_the_error() {
        for (query, error) in [
            ("tailLines=-1", "tailLines: expected a number, found \"-1\""),
            ("stream=stdin", "stream: expected All, Stdout or Stderr, found \"stdin\""),
            ("follow=maybe", "follow: expected true or false, found \"maybe\""),
            ("sinceTime=yesterday", "sinceTime: expected a time such as 2026-01-02T15:04:05Z, found \"yesterday\""),
        ] {
            assert_eq!(parsed("/containerLogs/d/w/m", query), Some(Err(error.to_owned())));
        }
        for path in ["/containerLogs/d/w", "/containerLogs/d/w/m/x", "/pods"] {
            assert_eq!(parsed(path, ""), None);
        }
    }
}
