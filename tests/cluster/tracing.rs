//! Traces, as a collector with tonic's server gets them. Its messages are those of opentelemetry-proto, as far as needed.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;

use serde_json::json;
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{Grpc, NamedService, UnaryService};

use super::joined::Joined;
use super::pods::WEB;
use super::pods::{is_ready, pod};

#[derive(Clone, PartialEq, prost::Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ExportResponse {}

/// An `opentelemetry.proto.collector.trace.v1.TraceService`.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ResourceSpans>>>);

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl UnaryService<ExportRequest> for Collector {
    type Response = ExportResponse;
    type Future = BoxFuture<tonic::Response<ExportResponse>, tonic::Status>;

    fn call(&mut self, request: tonic::Request<ExportRequest>) -> Self::Future {
        self.0.lock().unwrap().extend(request.into_inner().resources);
        Box::pin(async { Ok(tonic::Response::new(ExportResponse {})) })
    }
}

impl Service<http::Request<tonic::body::Body>> for Collector {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        assert_eq!(request.uri().path(), format!("/{}/Export", Self::NAME));
        let service = self.clone();
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::<ExportResponse, ExportRequest>::default();
            Ok(Grpc::new(codec).unary(service, request).await)
        })
    }
}

impl Collector {
    /// Serves in a thread until the test program ends. Returns the port.
    fn serve(&self) -> u16 {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let service = self.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let serving = tonic::transport::Server::builder().add_service(service).serve(address);
            runtime.block_on(serving).unwrap();
        });
        address.port()
    }

    fn spans(&self) -> Vec<Span> {
        let resources = self.0.lock().unwrap();
        resources.iter().flat_map(|resource| &resource.scopes).flat_map(|scope| scope.spans.clone()).collect()
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    found.and_then(|found| found.value.as_ref()?.text.as_deref()).unwrap_or_default()
}

#[test]
fn sync_of_a_pod_and_its_runtime_calls_are_one_trace() {
    let collector = Collector::default();
    let port = collector.serve();
    let mut joined = Joined::new();
    let tracing = format!("tracing: {{endpoint: \"127.0.0.1:{port}\", samplingRatePerMillion: 1000000}}\n");
    joined.start(&tracing, &[]);
    joined.api.create(&pod("web", &json!({})));
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    let name = "runtime.v1.RuntimeService/RunPodSandbox";
    joined.node.wait_until("the collector has the spans", |_| {
        let spans = collector.spans();
        let created = spans.iter().find(|span| span.name == name);
        created.is_some_and(|created| spans.iter().any(|span| span.span_id == created.parent))
    });
    let spans = collector.spans();
    let created = spans.iter().find(|span| span.name == name).unwrap();
    let sync = spans.iter().find(|span| span.span_id == created.parent).unwrap();
    assert_eq!((sync.name.as_str(), sync.kind, created.kind), ("syncPod", 1, 3));
    assert_eq!(
        (text(&sync.attributes, "k8s.pod.name"), text(&created.attributes, "rpc.method")),
        ("web", "RunPodSandbox")
    );
    assert_eq!(sync.trace_id, created.trace_id);
    assert_eq!((sync.trace_id.len(), sync.span_id.len(), sync.parent.len()), (16, 8, 0));
    assert!(sync.start <= created.start && created.start <= created.end && created.end <= sync.end);
    let resource = collector.0.lock().unwrap()[0].resource.clone().unwrap();
    assert_eq!(text(&resource.attributes, "service.name"), "kubelet");
}
