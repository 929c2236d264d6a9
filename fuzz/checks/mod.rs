//! The check of each fuzz target. A target includes its own file, `tests/fuzz_corpus` includes all.

pub(crate) mod archive;
pub(crate) mod container_files;
pub(crate) mod grpc_framing;
pub(crate) mod hpack;
pub(crate) mod http1;
pub(crate) mod http1_request;
pub(crate) mod http2;
pub(crate) mod manifest;
pub(crate) mod offline_record;
pub(crate) mod patch;
pub(crate) mod plugin_answers;
pub(crate) mod pod_fields;
pub(crate) mod protobuf;
pub(crate) mod registry_answers;
pub(crate) mod spdy;
pub(crate) mod x509;
