//! The status of a call, from trailers or from the HTTP status. Pure.

use std::borrow::Cow;
use std::fmt;

use super::percent;
use crate::protocol::hpack::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Ok,
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// The codes, ordered by number, with gRPC's names.
const CODES: [(Code, &str, &str); 17] = [
    (Code::Ok, "0", "OK"),
    (Code::Cancelled, "1", "Canceled"),
    (Code::Unknown, "2", "Unknown"),
    (Code::InvalidArgument, "3", "InvalidArgument"),
    (Code::DeadlineExceeded, "4", "DeadlineExceeded"),
    (Code::NotFound, "5", "NotFound"),
    (Code::AlreadyExists, "6", "AlreadyExists"),
    (Code::PermissionDenied, "7", "PermissionDenied"),
    (Code::ResourceExhausted, "8", "ResourceExhausted"),
    (Code::FailedPrecondition, "9", "FailedPrecondition"),
    (Code::Aborted, "10", "Aborted"),
    (Code::OutOfRange, "11", "OutOfRange"),
    (Code::Unimplemented, "12", "Unimplemented"),
    (Code::Internal, "13", "Internal"),
    (Code::Unavailable, "14", "Unavailable"),
    (Code::DataLoss, "15", "DataLoss"),
    (Code::Unauthenticated, "16", "Unauthenticated"),
];

impl Code {
    fn of_number(number: &[u8]) -> Self {
        let entry = CODES.iter().find(|(_, text, _)| text.as_bytes() == number);
        entry.map_or(Self::Unknown, |(code, ..)| *code)
    }

    fn texts(self) -> (&'static str, &'static str) {
        let entry = CODES.iter().find(|(code, ..)| *code == self);
        entry.map_or(("2", "Unknown"), |(_, number, name)| (number, name))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn ok() -> Self {
        Self::new(Code::Ok, String::new())
    }

    /// The status in trailers (or in a trailers-only response); `None` without grpc-status.
    pub fn of_trailers(fields: &[Field]) -> Option<Self> {
        let value = |name: &[u8]| fields.iter().find(|field| field.name == name).map(|field| &*field.value);
        let code = Code::of_number(value(b"grpc-status")?);
        Some(Self { code, message: percent::decode(value(b"grpc-message").unwrap_or_default()) })
    }

    /// Maps the `:status` of a response without grpc-status, by gRPC's table.
    pub fn of_http(status: &[u8]) -> Self {
        let code = match status {
            b"400" => Code::Internal,
            b"401" => Code::Unauthenticated,
            b"403" => Code::PermissionDenied,
            b"404" => Code::Unimplemented,
            b"429" | b"502" | b"503" | b"504" => Code::Unavailable,
            _ => Code::Unknown,
        };
        Self::new(code, format!("answered HTTP status {} without a gRPC status", status.escape_ascii()))
    }

    /// The trailers for this status.
    pub fn trailers(&self) -> Vec<Field> {
        let mut fields = vec![Field::fixed("grpc-status", self.code.texts().0)];
        if !self.message.is_empty() {
            let value = Cow::Owned(percent::encode(&self.message));
            fields.push(Field { name: Cow::Borrowed(b"grpc-message"), value });
        }
        fields
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips_through_trailers() {
        for (code, ..) in CODES {
            let status = Status::new(code, "no such pod: \u{e9} 100%\n");
            assert_eq!(Status::of_trailers(&status.trailers()), Some(status));
        }
    }

    #[test]
    fn codes_are_ordered_by_number() {
        for (number, (code, text, _)) in CODES.into_iter().enumerate() {
            assert_eq!(number.to_string(), text);
            assert_eq!(code as usize, number);
        }
    }

    #[test]
    fn trailers_without_grpc_status_have_no_status() {
        assert_eq!(Status::of_trailers(&[Field::fixed("grpc-message", "x")]), None);
    }

    #[test]
    fn undefined_code_is_unknown() {
        for number in ["17", "", "-1", "x", "00"] {
            let fields = [Field::new("grpc-status", number)];
            assert_eq!(Status::of_trailers(&fields), Some(Status::new(Code::Unknown, "")));
        }
    }

    #[test]
    fn http_statuses_map_to_grpc_codes() {
        for (status, code) in [
            ("400", Code::Internal),
            ("401", Code::Unauthenticated),
            ("403", Code::PermissionDenied),
            ("404", Code::Unimplemented),
            ("429", Code::Unavailable),
            ("502", Code::Unavailable),
            ("503", Code::Unavailable),
            ("504", Code::Unavailable),
            ("200", Code::Unknown),
            ("500", Code::Unknown),
        ] {
            assert_eq!(Status::of_http(status.as_bytes()).code, code, "{status}");
        }
    }
}
