//! Sends the spans in batches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::otlp::{EXPORT, Span, request};
use super::{TRACER, Tracer};
use crate::platform::config::{TraceEndpoint, TracingSettings};
use crate::platform::net::{DialError, Dialer};
use crate::platform::rpc::{self, Client, Signal, call_once};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// As OpenTelemetry's batch processor.
const EXPORT_DELAY: Duration = Duration::from_secs(5);
const MAX_EXPORTED_SPANS: usize = 512;
/// For one batch.
const SPAN_EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The collector's answer is empty, or tells how many spans it rejected.
const MAX_COLLECTOR_RESPONSE_BYTES: u32 = 64 << 10;

/// Sends spans while it runs.
pub(crate) struct Exporter {
    tracer: Rc<Tracer>,
    endpoint: TraceEndpoint,
    dialer: Dialer,
    resource: Vec<(&'static str, String)>,
}

#[derive(Debug)]
enum ExportError {
    Dial(DialError),
    Call(rpc::Error),
    Timeout,
}

impl Exporter {
    /// Starts the tracer of this thread.
    pub(crate) fn start(settings: &TracingSettings, node_name: &str) -> Self {
        let per_million = settings.per_million;
        let tracer = Rc::new(Tracer { per_million, waiting: RefCell::default(), filled: Signal::default() });
        TRACER.set(Some(Rc::clone(&tracer)));
        let resource = vec![("service.name", "kubelet".to_owned()), ("host.name", node_name.to_owned())];
        Self { tracer, endpoint: settings.endpoint.clone(), dialer: Dialer::new(), resource }
    }

    /// Sleeps while there are no spans.
    pub(crate) async fn run(self) {
        let mut has_failed = false;
        loop {
            let seen = self.tracer.filled.changes();
            if self.tracer.waiting.borrow().is_empty() {
                self.tracer.filled.beyond(seen).await;
            }
            rt::sleep(EXPORT_DELAY).await;
            loop {
                let batch = self.next_batch();
                if batch.is_empty() {
                    break;
                }
                match self.send(request(&self.resource, &batch)).await {
                    Ok(()) => has_failed = false,
                    Err(error) => {
                        batch.iter().for_each(|_| metrics::count(Count::SpansDropped, &["failed"]));
                        if !std::mem::replace(&mut has_failed, true) {
                            log!(warn, "failed to send traces", endpoint = self.endpoint, error = ErrorChain(&error));
                        }
                    }
                }
            }
        }
    }

    fn next_batch(&self) -> Vec<Span> {
        let mut waiting: std::cell::RefMut<'_, VecDeque<Span>> = self.tracer.waiting.borrow_mut();
        let count = waiting.len().min(MAX_EXPORTED_SPANS);
        waiting.drain(..count).collect()
    }

    async fn send(&self, request: Vec<u8>) -> Result<(), ExportError> {
        match &self.endpoint {
            TraceEndpoint::Unix(path) => {
                let client = Client::new(&path.to_string_lossy());
                client.unary(EXPORT, request, SPAN_EXPORT_TIMEOUT).await.map_err(ExportError::Call)?;
            }
            TraceEndpoint::Tcp { host, port } => {
                let stream = self.dialer.dial(host, *port, SPAN_EXPORT_TIMEOUT).await.map_err(ExportError::Dial)?;
                let agent = concat!("coracle/", env!("CARGO_PKG_VERSION")).to_owned();
                let call =
                    call_once(stream, agent, self.endpoint.to_string(), EXPORT, request, MAX_COLLECTOR_RESPONSE_BYTES);
                rt::deadline(SPAN_EXPORT_TIMEOUT, call)
                    .await
                    .map_err(|_| ExportError::Timeout)?
                    .map_err(ExportError::Call)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dial(_) => f.write_str("connect to the collector"),
            Self::Call(_) => f.write_str("call the collector"),
            Self::Timeout => f.write_str("the collector did not answer"),
        }
    }
}

impl std::error::Error for ExportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Dial(error) => Some(error),
            Self::Call(error) => Some(error),
            Self::Timeout => None,
        }
    }
}
