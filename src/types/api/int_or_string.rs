//! `IntOrString`: a number or a name, such as the port of a probe. Pure.

use std::fmt;

use serde_json::Value;

use super::decode::{Decode, DecodeContext, DecodeError, Input};
use super::encode::{Encode, Json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    Int(i32),
    String(String),
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}

impl Decode for IntOrString {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        match input {
            Input::Value(Value::String(text)) => Ok(Self::String(text)),
            Input::Value(Value::Number(_) | Value::Null) => i32::decode(input, context).map(Self::Int),
            other => Err(DecodeError::expected("a number or a string", &other)),
        }
    }
}

impl Encode for IntOrString {
    fn write(&self, json: &mut Json) {
        match self {
            Self::Int(number) => json.raw(number),
            Self::String(text) => json.string(text),
        }
    }
}
