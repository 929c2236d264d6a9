//! Content negotiation: whole objects, or metadata only. Pure.

use serde_json::{Value, json};

use super::api_error::ApiError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Metadata,
}

/// The first accepted form that the server supports.
pub(crate) fn accepted(accept: &str) -> Result<Form, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Form::Whole);
    }
    for wanted in accept.split(',') {
        let mut parts = wanted.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        if !["application/json", "application/*", "*/*"].contains(&media_type) {
            continue;
        }
        let parameters: Vec<&str> = parts.collect();
        match parameters.iter().find_map(|parameter| parameter.strip_prefix("as=")) {
            None => return Ok(Form::Whole),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList")
                if parameters.contains(&"g=meta.k8s.io") && parameters.contains(&"v=v1") =>
            {
                return Ok(Form::Metadata);
            }
            Some(_) => {}
        }
    }
    Err(ApiError::not_acceptable())
}

impl Form {
    pub(crate) fn show(self, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => match &object["items"] {
                Value::Array(items) => json!({
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                    "items": items.iter().map(metadata_of).collect::<Vec<_>>(),
                }),
                _ => metadata_of(&object),
            },
        }
    }
}

fn metadata_of(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}
