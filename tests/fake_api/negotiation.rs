//! The content of responses: whole objects, or metadata only, as Go encodes them. Pure.

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

/// The object as JSON, with the escapes of Go's encoder. Outside of strings, JSON has none of these characters.
pub(crate) fn encoded(object: &Value) -> String {
    let mut text = object.to_string();
    for (character, escape) in GO_ESCAPES {
        if text.contains(character) {
            text = text.replace(character, escape);
        }
    }
    text
}

const GO_ESCAPES: [(char, &str); 5] =
    [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

fn metadata_of(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}
