//! Parses the query of `/logs/?query=...` (NodeLogQuery), and makes it the arguments of journalctl. Pure.
//!
//! `newNodeLogQuery` and `validate` in pkg/kubelet/kubelet_server_journal.go, with upstream's messages.

use crate::control::server::http::{Response, Status};
use crate::protocol::http1::Request;
use crate::types::api::{Time, decode};

/// A valid query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeLogQuery {
    /// Units of the journal, or names of log files. Empty with a file.
    pub(super) services: Vec<String>,
    /// A path below /var/log.
    pub(super) file: Option<String>,
    /// What else to ask the journal for.
    pub(super) options: Vec<String>,
}

/// The bounds of upstream's node log query (`maxTailLines`, `maxServiceLength`, `maxServices`): its client expects them.
const MAX_TAIL_LINES: i64 = 100_000;
const MAX_SERVICE_NAME_BYTES: usize = 256;
const MAX_LOG_SERVICES: usize = 4;

/// `None` if the request has no query: it is for a file.
pub(super) fn parse(request: &Request) -> Result<Option<NodeLogQuery>, Response> {
    let mut faults = Vec::new();
    let queries = request.query_values("query");
    // A slash tells a file from a service.
    let is_file = |query: &&String| query.contains(['/', '\\']);
    let files: Vec<&String> = queries.iter().filter(is_file).collect();
    let services: Vec<String> =
        queries.iter().filter(|query| !is_file(query) && !query.trim().is_empty()).cloned().collect();
    if !queries.is_empty() && files.is_empty() && services.is_empty() {
        faults.push(invalid("query", &format!("{queries:?}"), "query cannot be empty"));
    }
    let option = |key: &str| request.query_value(key).filter(|value| !value.is_empty());
    let mut time = |key: &'static str| -> Option<Time> {
        let value = option(key)?;
        let parsed = decode(value.as_str().into()).ok().map(|decoded| decoded.value);
        if parsed.is_none() {
            faults.push(invalid(key, &format!("{value:?}"), "invalid time format"));
        }
        parsed
    };
    let (since, until) = (time("sinceTime"), time("untilTime"));
    let mut number = |key: &'static str| -> Option<i64> {
        let value = option(key)?;
        let parsed = value.parse().ok();
        if parsed.is_none() {
            let why = format!("strconv.Atoi: parsing {value:?}: invalid syntax");
            faults.push(invalid(key, &format!("{value:?}"), &why));
        }
        parsed
    };
    let (boot, tail) = (number("boot"), number("tailLines"));
    let pattern = option("pattern");
    if !faults.is_empty() {
        return Err(refusal(Status::BadRequest, &faults));
    }
    let has_options = since.is_some() || until.is_some() || boot.is_some() || tail.is_some() || pattern.is_some();
    if files.is_empty() && services.is_empty() && !has_options {
        return Ok(None);
    }
    faults.extend(services.iter().filter_map(|service| unsafe_service(service)));
    if services.len() > MAX_LOG_SERVICES {
        faults.push(format!("query: Too many: {}: must have at most {MAX_LOG_SERVICES} items", services.len()));
    }
    let shown = || format!("{files:?}");
    match (files.as_slice(), services.is_empty()) {
        ([], true) => faults.push("query: Required value: cannot be empty with options".to_owned()),
        ([], false) => {}
        (_, false) => faults.push(invalid("query", &shown(), "cannot specify a file and service")),
        ([_, _, ..], true) => faults.push(invalid("query", &shown(), "cannot specify more than one file")),
        ([_], true) if has_options => faults.push(invalid("query", &shown(), "cannot specify file with options")),
        ([_], true) => {}
    }
    if let (Some(since), Some(until)) = (since, until) {
        if since > until {
            faults.push(invalid("untilTime", &until.to_string(), "must be after `sinceTime`"));
        }
    }
    if let Some(boot) = boot.filter(|boot| *boot > 0) {
        faults.push(invalid("boot", &boot.to_string(), "must be less than 1"));
    }
    if let Some(tail) = tail.filter(|tail| !(0..=MAX_TAIL_LINES).contains(tail)) {
        let why = format!("must be between 0 and {MAX_TAIL_LINES}, inclusive");
        faults.push(invalid("tailLines", &tail.to_string(), &why));
    }
    if !faults.is_empty() {
        return Err(refusal(Status::NotAcceptable, &faults));
    }
    let mut options = Vec::new();
    options.extend(since.map(|since| format!("--since=@{}", since.unix_seconds())));
    options.extend(until.map(|until| format!("--until=@{}", until.unix_seconds())));
    options.extend(tail.map(|tail| format!("--lines={tail}")));
    options.extend(pattern.map(|pattern| format!("--grep={pattern}")));
    options.extend(boot.map(|boot| format!("--boot={boot}")));
    Ok(Some(NodeLogQuery { services, file: files.first().map(|file| file.replace('\\', "/")), options }))
}

/// The arguments of journalctl.
pub(super) fn journal_arguments(query: &NodeLogQuery) -> Vec<String> {
    let fixed = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned);
    let units = query.services.iter().map(|service| format!("--unit={service}"));
    fixed.into_iter().chain(query.options.iter().cloned()).chain(units).collect()
}

/// The fault of a name that could be more than a unit for journalctl, or leave /var/log.
fn unsafe_service(service: &str) -> Option<String> {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    let why = if service.len() > MAX_SERVICE_NAME_BYTES {
        "length must be less than 256"
    } else if !service.bytes().all(is_safe) || service == ".." {
        "input contains unsupported characters"
    } else {
        return None;
    };
    Some(invalid("query", &format!("{service:?}"), why))
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value}: {why}")
}

fn refusal(status: Status, faults: &[String]) -> Response {
    let text = match faults {
        [fault] => format!("{fault}\n"),
        faults => format!("[{}]\n", faults.join(", ")),
    };
    Response::text(status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<Option<NodeLogQuery>, (Status, String)> {
        let head = format!("GET /logs/?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
        let (request, _) = Request::take(head.as_bytes()).unwrap().unwrap();
        parse(&request).map_err(|response| (response.status, String::from_utf8(response.body).unwrap()))
    }

    #[track_caller]
    fn refused(query: &str, status: Status, text: &str) {
        assert_eq!(parsed(query), Err((status, format!("{text}\n"))), "{query}");
    }

    #[test]
    fn services_and_options_are_arguments_of_journalctl() {
        let query = "query=kubelet&query=crio&sinceTime=2026-01-02T15:04:05Z&untilTime=2026-01-02T15:04:05%2B01:00\
                     &tailLines=10&boot=-1&pattern=a%20%26%20b";
        let refused_order = parsed(query).unwrap_err().1;
        assert!(refused_order.contains("must be after `sinceTime`"), "{refused_order}");
        let query = query.replace("untilTime=2026-01-02T15", "untilTime=2026-01-02T17");
        let arguments = journal_arguments(&parsed(&query).unwrap().unwrap());
        assert_eq!(
            arguments,
            [
                "--utc",
                "--no-pager",
                "--output=short-precise",
                "--since=@1767366245",
                "--until=@1767369845",
                "--lines=10",
                "--grep=a & b",
                "--boot=-1",
                "--unit=kubelet",
                "--unit=crio",
            ]
        );
    }

    #[test]
    fn slash_tells_a_file_from_a_service() {
        let file = parsed("query=/foo.log").unwrap().unwrap();
        assert_eq!((file.file.as_deref(), file.services.is_empty()), (Some("/foo.log"), true));
        assert_eq!(parsed("query=foo%5Cbar.log").unwrap().unwrap().file.as_deref(), Some("foo/bar.log"));
        assert_eq!(parsed("query=foo.log").unwrap().unwrap().services, ["foo.log"]);
        assert_eq!((parsed(""), parsed("other=1")), (Ok(None), Ok(None)));
    }

    #[test]
    fn invalid_queries_have_upstreams_status_and_text() {
        use Status::{BadRequest, NotAcceptable};
        refused("query=%20", BadRequest, "query: Invalid value: [\" \"]: query cannot be empty");
        refused("query=a&sinceTime=now", BadRequest, "sinceTime: Invalid value: \"now\": invalid time format");
        let boot = "boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax";
        refused("query=a&boot=x", BadRequest, boot);
        refused("tailLines=1", NotAcceptable, "query: Required value: cannot be empty with options");
        refused("query=a&boot=1", NotAcceptable, "boot: Invalid value: 1: must be less than 1");
        let lines = "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive";
        refused("query=a&tailLines=100001", NotAcceptable, lines);
        let two = "query: Invalid value: [\"/a\", \"/b\"]: cannot specify more than one file";
        refused("query=/a&query=/b", NotAcceptable, two);
        let both = "query: Invalid value: [\"/a\"]: cannot specify a file and service";
        refused("query=/a&query=b", NotAcceptable, both);
        let options = "query: Invalid value: [\"/a\"]: cannot specify file with options";
        refused("query=/a&tailLines=1", NotAcceptable, options);
        refused(
            "query=a&query=b&query=c&query=d&query=e",
            NotAcceptable,
            "query: Too many: 5: must have at most 4 items",
        );
        for name in ["a;b", "$(x)", "a%20b", "a%00", ".."] {
            let text = parsed(&format!("query={name}")).unwrap_err().1;
            assert!(text.contains("unsupported characters"), "{name}: {text}");
        }
    }
}
