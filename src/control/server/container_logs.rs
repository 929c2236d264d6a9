//! Container logs, for the local socket and the kubelet API.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::Pin;

use super::connections::{Reply, Text};
use super::http::{Response, Status};
use super::local_api::{LocalApi, LogSource};
use super::log_query;
use crate::kubelet::logs::{LogReader, LogRequest};
use crate::platform::host::clock;
use crate::types::error::ErrorChain;

/// `None` for any other path.
pub(super) fn container_logs(path: &str, query: &str, api: &dyn LocalApi) -> Option<Reply> {
    let log_query = log_query::parse(path, query, clock::timestamp())?;
    let log_query = log_query.map_err(|error| Response::text(Status::BadRequest, error + "\n"));
    let text = log_query.and_then(|log_query| match api.log(&log_query) {
        Ok(source) => Ok(LogText { source, request: log_query.request, reader: None }),
        Err(error) => {
            let status = if error.is_missing_pod() { Status::NotFound } else { Status::BadRequest };
            // Without a line end, as upstream: the API server puts the text into its own message.
            Err(Response::text(status, error.to_string()))
        }
    });
    Some(match text {
        Ok(text) => Reply::Text(Box::new(text)),
        Err(response) => Reply::Whole(response),
    })
}

/// A container's log being sent.
struct LogText {
    source: LogSource,
    request: LogRequest,
    reader: Option<LogReader>,
}

impl Text for LogText {
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>> {
        Box::pin(async {
            match LogReader::open(self.source.log.clone(), self.request.clone()).await {
                Ok(reader) => self.reader = Some(reader),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(Response::text(Status::BadRequest, "the log of this container is gone"));
                }
                Err(error) => {
                    let message = format!("read {}: {}\n", self.source.log.display(), ErrorChain(&error));
                    return Err(Response::text(Status::InternalServerError, message));
                }
            }
            Ok(())
        })
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>> {
        Box::pin(async {
            let reader = self.reader.as_mut()?;
            match reader.next(&self.source.ended).await {
                Ok(part) => part,
                Err(error) => {
                    log!(
                        warn,
                        "failed to read the container log",
                        log = self.source.log.display(),
                        error = ErrorChain(&error)
                    );
                    None
                }
            }
        })
    }
}
