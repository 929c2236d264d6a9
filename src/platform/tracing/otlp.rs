//! Spans as OTLP messages, and which traces are sampled. Pure.
//!
//! opentelemetry/proto/trace/v1/trace.proto and the collector's trace_service.proto.

/// What a span is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal,
    Client,
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) trace: u128,
    pub(super) id: u64,
    /// 0: a root.
    pub(super) parent: u64,
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    /// Unix time in nanoseconds.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, String)>,
    pub(super) error: Option<String>,
}

/// The path of the collector's method.
pub(super) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Upstream's instrumentation scope.
const SCOPE: &str = "k8s.io/kubernetes/pkg/kubelet";

/// `TraceIDRatioBased`: the same traces are sampled on every node with the same rate.
pub(super) fn is_sampled(trace: u128, per_million: u32) -> bool {
    let low = u64::try_from(trace & u128::from(u64::MAX)).unwrap_or(0);
    u128::from(low >> 1) * 1_000_000 < u128::from(per_million) << 63
}

/// An `ExportTraceServiceRequest` of one resource with these attributes.
pub(super) fn request(resource: &[(&'static str, String)], spans: &[Span]) -> Vec<u8> {
    let mut of_resource = Vec::new();
    put_attributes(&mut of_resource, 1, resource);
    let mut scope = Vec::new();
    put(&mut scope, 1, SCOPE.as_bytes());
    let mut of_scope = Vec::new();
    put(&mut of_scope, 1, &scope);
    for span in spans {
        put(&mut of_scope, 2, &encoded(span));
    }
    let mut resource_spans = Vec::new();
    put(&mut resource_spans, 1, &of_resource);
    put(&mut resource_spans, 2, &of_scope);
    let mut request = Vec::new();
    put(&mut request, 1, &resource_spans);
    request
}

fn encoded(span: &Span) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, &span.trace.to_be_bytes());
    put(&mut out, 2, &span.id.to_be_bytes());
    if span.parent != 0 {
        put(&mut out, 4, &span.parent.to_be_bytes());
    }
    put(&mut out, 5, span.name.as_bytes());
    put_number(&mut out, 6, if span.kind == SpanKind::Client { 3 } else { 1 });
    put_fixed(&mut out, 7, span.start);
    put_fixed(&mut out, 8, span.end);
    put_attributes(&mut out, 9, &span.attributes);
    if let Some(error) = &span.error {
        let mut status = Vec::new();
        put(&mut status, 2, error.as_bytes());
        put_number(&mut status, 3, 2);
        put(&mut out, 15, &status);
    }
    out
}

fn put_attributes(out: &mut Vec<u8>, field: u8, attributes: &[(&'static str, String)]) {
    for (key, value) in attributes {
        let mut text = Vec::new();
        put(&mut text, 1, value.as_bytes());
        let mut attribute = Vec::new();
        put(&mut attribute, 1, key.as_bytes());
        put(&mut attribute, 2, &text);
        put(out, field, &attribute);
    }
}

/// A field of bytes. All fields here have numbers below 16.
fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(0));
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3);
    put_varint(out, number);
}

fn put_fixed(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3 | 1);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        out.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    out.push(low);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_part_of_the_traces_that_is_sampled() {
        let traces: Vec<u128> = (0..10_000u128).map(|n| n * (u128::from(u64::MAX) / 10_000)).collect();
        let sampled = |rate| traces.iter().filter(|trace| is_sampled(**trace, rate)).count();
        assert_eq!((sampled(0), sampled(1_000_000)), (0, 10_000));
        assert!((999..=1001).contains(&sampled(100_000)), "{}", sampled(100_000));
        assert!(is_sampled(u128::MAX, 1_000_000));
    }

    #[test]
    fn span_is_encoded_field_by_field() {
        let span = Span {
            trace: 1,
            id: 2,
            parent: 3,
            name: "s",
            kind: SpanKind::Client,
            start: 4,
            end: 5,
            attributes: vec![("k", "v".to_owned())],
            error: Some("e".to_owned()),
        };
        let mut expected = vec![0x0a, 16];
        expected.extend([0; 15].iter().chain(&[1]));
        expected.extend([0x12, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0x22, 8, 0, 0, 0, 0, 0, 0, 0, 3, 0x2a, 1, b's', 0x30, 3]);
        expected.extend([0x39, 4, 0, 0, 0, 0, 0, 0, 0, 0x41, 5, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x4a, 8, 0x0a, 1, b'k', 0x12, 3, 0x0a, 1, b'v', 0x7a, 5, 0x12, 1, b'e', 0x18, 2]);
        assert_eq!(encoded(&span), expected);
        let mut long = Vec::new();
        put(&mut long, 1, &[7; 300]);
        assert_eq!(long.get(..3), Some(&[0x0a, 0xac, 0x02][..]));
    }
}
