//! `POST /agent` on the local socket: `coracle upgrade`, `coracle config apply` and `coracle runtime-config --apply`.

use std::time::Duration;

use serde_json::json;

use super::connections::Reply;
use super::http::{Response, Status};
use super::local_api::{AgentRequest, LocalApi};
use crate::protocol::http1::Request;

fn read(request: &Request) -> Option<AgentRequest> {
    let value = |key| request.query_value(key);
    let within = || value("within")?.parse().ok().map(Duration::from_secs);
    match value("what")?.as_str() {
        "rollback" => Some(AgentRequest::RollBack),
        "runtime-verdict" => Some(AgentRequest::RuntimeVerdict),
        "url" => {
            let allow_downgrade = value("downgrade").is_some_and(|downgrade| downgrade == "true");
            Some(AgentRequest::Url { url: value("url")?, within: within()?, allow_downgrade })
        }
        "program" => {
            Some(AgentRequest::Program { digest: value("digest")?, version: value("version")?, within: within()? })
        }
        "config" => Some(AgentRequest::Config { digest: value("digest")?, within: within()? }),
        _ => None,
    }
}

/// `None` for any other path.
pub(super) fn agent(request: &Request, api: &dyn LocalApi) -> Option<Reply> {
    if request.path != "/agent" {
        return None;
    }
    if request.method != "POST" {
        return Some(Reply::Whole(Response::not_allowed()));
    }
    let Some(wanted) = read(request) else {
        let line = "expected ?what=program&digest=SHA256&version=VERSION&within=SECONDS, config, url, rollback or runtime-verdict\n";
        return Some(Reply::Whole(Response::text(Status::BadRequest, line)));
    };
    let response = api.update_agent(wanted);
    Some(Reply::Slow(Box::pin(async {
        match response.await {
            Ok(line) => Response::json(json!({ "result": line }).to_string().into_bytes()),
            Err(why) => Response::text(Status::Conflict, why + "\n"),
        }
    })))
}
