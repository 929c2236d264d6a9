//! Validates header lists (RFC 9113 section 8). Pure.

use crate::protocol::hpack::Field;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Request,
    Response,
    Trailers,
}

/// Returns the first problem of the list.
pub(super) fn check(fields: &[Field], block: BlockKind) -> Result<(), &'static str> {
    let mut pseudo = Pseudo::default();
    let mut regular = false;
    for field in fields {
        check_value(&field.value)?;
        match field.name.strip_prefix(b":") {
            Some(_) if regular => return Err("pseudo-header field after a regular one"),
            Some(name) => pseudo.take(name, &field.value)?,
            None => {
                regular = true;
                check_regular(field)?;
            }
        }
    }
    pseudo.check(block)
}

/// The value of content-length, if present.
pub(super) fn content_length(fields: &[Field]) -> Result<Option<u64>, &'static str> {
    let Some(field) = fields.iter().find(|field| &*field.name == b"content-length") else { return Ok(None) };
    let text = std::str::from_utf8(&field.value).map_err(|_| BAD_LENGTH)?;
    // `parse` would accept a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD_LENGTH);
    }
    text.parse().map(Some).map_err(|_| BAD_LENGTH)
}

pub(super) fn is_informational(fields: &[Field]) -> bool {
    fields.iter().any(|field| &*field.name == b":status" && field.value.starts_with(b"1"))
}

/// How often each pseudo-header field occurs.
#[derive(Default, PartialEq, Eq)]
struct Pseudo {
    method: u8,
    scheme: u8,
    path: u8,
    authority: u8,
    status: u8,
}

impl Pseudo {
    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let (count, good) = match name {
            b"method" => (&mut self.method, !value.is_empty()),
            b"scheme" => (&mut self.scheme, !value.is_empty()),
            b"path" => (&mut self.path, !value.is_empty()),
            b"authority" => (&mut self.authority, true),
            b"status" => (&mut self.status, value.len() == 3 && value.iter().all(u8::is_ascii_digit)),
            _ => return Err("unknown pseudo-header field"),
        };
        *count = count.saturating_add(1);
        if good { Ok(()) } else { Err("bad value of a pseudo-header field") }
    }

    fn check(&self, block: BlockKind) -> Result<(), &'static str> {
        let nothing = Self::default();
        let wanted = match block {
            // CONNECT has fewer, and is not supported.
            BlockKind::Request => Self { method: 1, scheme: 1, path: 1, authority: self.authority.min(1), ..nothing },
            BlockKind::Response => Self { status: 1, ..nothing },
            BlockKind::Trailers => nothing,
        };
        if *self == wanted { Ok(()) } else { Err("missing, repeated or misplaced pseudo-header field") }
    }
}

fn check_regular(field: &Field) -> Result<(), &'static str> {
    let name = &*field.name;
    let allowed = |byte: &u8| matches!(byte, b'!'..=b'~') && !byte.is_ascii_uppercase() && *byte != b':';
    if name.is_empty() || !name.iter().all(allowed) {
        return Err("bad character in a field name");
    }
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
            Err("connection-specific field")
        }
        b"te" if &*field.value != b"trailers" => Err("connection-specific field"),
        _ => Ok(()),
    }
}

/// Allows leading and trailing spaces, against section 8.2.1: gRPC peers leave them in grpc-message, and rejecting them
/// would lose the status.
fn check_value(value: &[u8]) -> Result<(), &'static str> {
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
        Err("bad character in a field value")
    } else {
        Ok(())
    }
}

const BAD_LENGTH: &str = "bad content-length";
