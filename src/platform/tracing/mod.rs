//! Spans of what the agent does, for an OpenTelemetry collector (`tracing` of the KubeletConfiguration).
//!
//! Without a sampling rate there is no tracer, and a span costs one look. Spans wait in a queue that has a bound; what
//! does not fit, or could not be sent, is dropped and counted.

mod export;
mod otlp;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Instant;

use crate::platform::host::clock;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::types::metrics::{self, Count};

pub(crate) use export::Exporter;
pub(crate) use otlp::SpanKind;

use otlp::{Span, is_sampled};

thread_local! {
    static TRACER: RefCell<Option<Rc<Tracer>>> = const { RefCell::new(None) };
    /// The span of the task that is being polled.
    static CURRENT: Cell<Option<Context>> = const { Cell::new(None) };
}

/// Bound of the queue, as of OpenTelemetry's batch processor.
const MAX_QUEUED_SPANS: usize = 2048;

struct Tracer {
    per_million: u32,
    waiting: RefCell<VecDeque<Span>>,
    /// A span was added to the empty queue.
    filled: Signal,
}

/// The identity of a span for its children.
#[derive(Clone, Copy)]
struct Context {
    trace: u128,
    span: u64,
    sampled: bool,
}

/// A span that has begun. It ends when it is dropped.
pub(crate) struct OpenSpan {
    context: Option<Context>,
    begun: Option<(Rc<Tracer>, Instant, Box<Span>)>,
}

/// Begins a span: a child of the current one, or a new trace.
pub(crate) fn begin(
    name: &'static str,
    kind: SpanKind,
    attributes: impl FnOnce() -> Vec<(&'static str, String)>,
) -> OpenSpan {
    let Some(tracer) = TRACER.with_borrow(Clone::clone) else { return OpenSpan { context: None, begun: None } };
    let parent = CURRENT.get();
    let trace = parent.map_or_else(|| u128::from(random()) << 64 | u128::from(random()), |parent| parent.trace);
    let sampled = parent.map_or_else(|| is_sampled(trace, tracer.per_million), |parent| parent.sampled);
    let context = Context { trace, span: random(), sampled };
    let begun = sampled.then(|| {
        let span = Span {
            trace,
            id: context.span,
            parent: parent.map_or(0, |parent| parent.span),
            name,
            kind,
            start: clock::unix_nanos(),
            end: 0,
            attributes: attributes(),
            error: None,
        };
        (tracer, rt::now(), Box::new(span))
    });
    OpenSpan { context: Some(context), begun }
}

impl OpenSpan {
    /// The work of the span has failed.
    pub(crate) fn fail(&mut self, error: impl FnOnce() -> String) {
        if let Some((.., span)) = &mut self.begun {
            span.error = Some(error());
        }
    }

    /// Spans that begin while `work` is polled are children of this one.
    pub(crate) async fn around<F: Future>(&self, work: F) -> F::Output {
        let Some(context) = self.context else { return work.await };
        let mut work = pin!(work);
        std::future::poll_fn(move |task| {
            let before = CURRENT.replace(Some(context));
            let polled = Pin::as_mut(&mut work).poll(task);
            CURRENT.set(before);
            polled
        })
        .await
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let Some((tracer, begun, mut span)) = self.begun.take() else { return };
        let took = u64::try_from(rt::elapsed(begun).as_nanos()).unwrap_or(0);
        span.end = span.start.saturating_add(took);
        tracer.add(*span);
    }
}

impl Tracer {
    fn add(&self, span: Span) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MAX_QUEUED_SPANS {
            metrics::count(Count::SpansDropped, &["full"]);
            return;
        }
        waiting.push_back(span);
        drop(waiting);
        self.filled.notify();
    }
}

/// Never 0, which is no id.
fn random() -> u64 {
    (u64::from(rt::random()) << 32 | u64::from(rt::random())).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_tracer(per_million: u32, test: impl FnOnce(&Tracer)) {
        let tracer = Rc::new(Tracer { per_million, waiting: RefCell::default(), filled: Signal::default() });
        TRACER.set(Some(Rc::clone(&tracer)));
        test(&tracer);
        TRACER.set(None);
    }

    fn child() {
        let mut call = begin("call", SpanKind::Client, || vec![("k", "v".to_owned())]);
        call.fail(|| "refused".to_owned());
    }

    #[test]
    fn calls_of_a_task_are_children_of_its_span() {
        with_tracer(1_000_000, |tracer| {
            rt::block_on(async {
                let span = begin("syncPod", SpanKind::Internal, Vec::new);
                span.around(async {
                    child();
                    rt::yield_now().await;
                    child();
                })
                .await;
                child();
            });
            let spans: Vec<Span> = tracer.waiting.take().into();
            let [first, second, other, root] = spans.as_slice() else { panic!("{spans:?}") };
            assert_eq!((root.name, root.parent), ("syncPod", 0));
            for span in [first, second] {
                assert_eq!((span.trace, span.parent, span.kind), (root.trace, root.id, SpanKind::Client));
                assert_eq!(span.error.as_deref(), Some("refused"));
            }
            assert!(other.trace != root.trace && other.parent == 0, "a call of another task");
            assert!(root.start > 0 && root.end >= first.end);
        });
    }

    #[test]
    fn traces_that_are_not_sampled_have_no_spans() {
        with_tracer(0, |tracer| {
            let span = begin("syncPod", SpanKind::Internal, || panic!("not asked for"));
            rt::block_on(span.around(async { child() }));
            drop(span);
            assert!(tracer.waiting.borrow().is_empty());
        });
        // Without a tracer.
        child();
    }

    #[test]
    fn queue_is_bounded() {
        with_tracer(1_000_000, |tracer| {
            (0..MAX_QUEUED_SPANS + 5).for_each(|_| child());
            assert_eq!(tracer.waiting.borrow().len(), MAX_QUEUED_SPANS);
        });
    }
}
