//! Validates the document that names the version of the agent. Pure.

use super::faults::Faults;
use crate::types::api::AgentDocument;
use crate::types::api::decode::Path;

pub(super) fn check_agent(document: &AgentDocument, faults: &mut Faults) {
    let (spec, root) = (&document.spec, Path::Root);
    let path = root.key("spec");
    let has_program = spec.config.is_empty() || !spec.url.is_empty() || !spec.version.is_empty();
    if has_program && spec.version.is_empty() {
        faults.required(&path.key("version"));
    }
    if has_program && !["https://", "http://", "oci://"].iter().any(|scheme| spec.url.starts_with(scheme)) {
        faults.invalid(&path.key("url"), &spec.url, "must be an http, https or oci URL");
    }
    let digests = path.key("sha256");
    for (architecture, digest) in spec.sha256.iter() {
        let field_path = digests.key(architecture);
        if !AGENT_ARCHITECTURES.contains(&architecture) {
            faults.other(&field_path, format_args!("must be one of {}", AGENT_ARCHITECTURES.join(", ")));
        }
        if digest.len() != 64 || !digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            faults.invalid(&field_path, digest, "must be 64 hexadecimal digits in lower case");
        }
    }
    if let Some(within) = spec.within_seconds.filter(|within| !(1..=86_400).contains(within)) {
        faults.out_of_range(&path.key("withinSeconds"), within, "must be between 1 and 86400");
    }
}

/// Architectures with releases, in Go's naming.
const AGENT_ARCHITECTURES: [&str; 5] = ["386", "amd64", "arm", "arm64", "riscv64"];
