//! D-Bus messages: the subset needed to call systemd and logind and to read their replies and signals. Pure.
//!
//! D-Bus specification, "Message Protocol". Only little-endian messages: the sender chooses the byte order, systemd and
//! logind use the machine's, and every machine that Coracle supports is little-endian.

/// A method call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub destination: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    /// The types of the body's arguments.
    pub signature: &'a str,
}

/// The marshalled arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct Body(Vec<u8>);

/// A value of one of the types that systemd properties need here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant<'a> {
    Bool(bool),
    U64(u64),
    Text(&'a str),
    Texts(&'a [&'a str]),
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// The unique name of the sending connection; empty without a bus.
    pub sender: String,
    /// The arguments up to the first one of a type that [`Value`] lacks. A variant is replaced by its content.
    pub arguments: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The reply to the call with serial `to`.
    Return {
        to: u32,
    },
    /// The error reply to the call with serial `to`; the first argument is the message.
    Error {
        to: u32,
        name: String,
    },
    Signal {
        member: String,
    },
    /// A method call to this process, which offers no methods.
    Other,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Bool(bool),
    /// The index of a file descriptor that came with the message.
    Fd(u32),
    /// A string or an object path.
    Text(String),
    U32(u32),
    U64(u64),
}

/// Not a message that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed D-Bus message")
    }
}

impl std::error::Error for Malformed {}

/// The length of the header before its field array.
pub const FIXED_HEADER_BYTES: usize = 16;
/// Longer messages are refused; expected replies have a few hundred bytes.
const MAX_DBUS_MESSAGE_BYTES: usize = 1 << 20;

/// Marshals a call. `serial` must not be 0; the reply refers to it.
pub fn call(call: &Call<'_>, serial: u32, body: &Body) -> Vec<u8> {
    let mut fields = Body::default();
    for (code, kind, value) in
        [(1, "o", call.path), (6, "s", call.destination), (2, "s", call.interface), (3, "s", call.member)]
    {
        fields.align(8);
        fields.0.push(code);
        fields.signature(kind);
        fields.text(value);
    }
    if !call.signature.is_empty() {
        fields.align(8);
        fields.0.push(8);
        fields.signature("g");
        fields.signature(call.signature);
    }
    let mut message = Body(vec![b'l', METHOD_CALL, 0, 1]);
    message.u32(length(&body.0));
    message.u32(serial);
    message.u32(length(&fields.0));
    message.0.extend_from_slice(&fields.0);
    message.align(8);
    message.0.extend_from_slice(&body.0);
    message.0
}

/// The length of the whole message that begins with `header`.
pub fn message_length(header: &[u8; FIXED_HEADER_BYTES]) -> Result<usize, Malformed> {
    if header.first() != Some(&b'l') {
        return Err(Malformed);
    }
    let mut reader = Reader { bytes: header, at: 4 };
    let body = reader.length()?;
    reader.u32()?;
    let fields = reader.length()?;
    let total =
        FIXED_HEADER_BYTES.saturating_add(fields).checked_next_multiple_of(8).ok_or(Malformed)?.saturating_add(body);
    if total > MAX_DBUS_MESSAGE_BYTES { Err(Malformed) } else { Ok(total) }
}

/// Parses a whole message of the length that [`message_length`] gave.
pub fn read(message: &[u8]) -> Result<Message, Malformed> {
    let mut reader = Reader { bytes: message, at: 1 };
    let kind = reader.byte()?;
    reader.at = 12;
    let fields_end = reader.length()?.saturating_add(FIXED_HEADER_BYTES);
    let (mut to, mut member, mut name, mut sender, mut signature) =
        (0, String::new(), String::new(), String::new(), String::new());
    while reader.at < fields_end {
        reader.align(8);
        if reader.at >= fields_end {
            break;
        }
        let code = reader.byte()?;
        let value = reader.signature()?;
        match (code, value.as_str()) {
            (5, "u") => to = reader.u32()?,
            (3, "s") => member = reader.text()?,
            (4, "s") => name = reader.text()?,
            (7, "s") => sender = reader.text()?,
            (8, "g") => signature = reader.signature()?,
            (_, "s" | "o") => drop(reader.text()?),
            (_, "u") => drop(reader.u32()?),
            (_, "g") => drop(reader.signature()?),
            _ => return Err(Malformed),
        }
    }
    reader.at = fields_end;
    reader.align(8);
    let mut arguments = Vec::new();
    for kind in signature.chars() {
        let inside = if kind == 'v' { reader.signature()? } else { String::from(kind) };
        let Some(value) = reader.value(&inside)? else { break };
        arguments.push(value);
    }
    let kind = match kind {
        METHOD_RETURN => Kind::Return { to },
        ERROR => Kind::Error { to, name },
        SIGNAL => Kind::Signal { member },
        _ => Kind::Other,
    };
    Ok(Message { kind, sender, arguments })
}

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

fn length(bytes: &[u8]) -> u32 {
    // Messages built here have a few hundred bytes.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

impl Body {
    pub fn text(&mut self, text: &str) {
        self.u32(length(text.as_bytes()));
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }

    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// An empty array of structs.
    pub fn no_structures(&mut self) {
        self.u32(0);
        self.align(8);
    }

    /// `a(sv)`: property names and values.
    pub fn properties(&mut self, properties: &[(&str, Variant<'_>)]) {
        self.array(8, |body| {
            for (name, value) in properties {
                body.align(8);
                body.text(name);
                body.variant(*value);
            }
        });
    }

    fn variant(&mut self, value: Variant<'_>) {
        match value {
            Variant::Bool(value) => {
                self.signature("b");
                self.bool(value);
            }
            Variant::U64(value) => {
                self.signature("t");
                self.align(8);
                self.0.extend_from_slice(&value.to_le_bytes());
            }
            Variant::Text(text) => {
                self.signature("s");
                self.text(text);
            }
            Variant::Texts(texts) => {
                self.signature("as");
                self.array(4, |body| texts.iter().for_each(|text| body.text(text)));
            }
        }
    }

    /// The length of an array excludes the padding before its first element.
    fn array(&mut self, alignment: usize, elements: impl FnOnce(&mut Self)) {
        self.align(4);
        let index = self.0.len();
        self.u32(0);
        self.align(alignment);
        let start = self.0.len();
        elements(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        if let Some(prefix) = self.0.get_mut(index..index + 4) {
            prefix.copy_from_slice(&length.to_le_bytes());
        }
    }

    pub fn u32(&mut self, value: u32) {
        self.align(4);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.0.extend_from_slice(signature.as_bytes());
        self.0.push(0);
    }

    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.align(4);
        let bytes = self.take(4)?.first_chunk().ok_or(Malformed)?;
        Ok(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.align(8);
        let bytes = self.take(8)?.first_chunk().ok_or(Malformed)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// `None` for a type that [`Value`] lacks.
    fn value(&mut self, kind: &str) -> Result<Option<Value>, Malformed> {
        Ok(Some(match kind {
            "b" => Value::Bool(self.u32()? != 0),
            "h" => Value::Fd(self.u32()?),
            "s" | "o" => Value::Text(self.text()?),
            "u" => Value::U32(self.u32()?),
            "t" => Value::U64(self.u64()?),
            _ => return Ok(None),
        }))
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.u32()?).map_err(|_| Malformed)
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = self.length()?;
        self.string(length)
    }

    fn signature(&mut self) -> Result<String, Malformed> {
        let length = usize::from(self.byte()?);
        self.string(length)
    }

    fn string(&mut self, length: usize) -> Result<String, Malformed> {
        let text = String::from_utf8(self.take(length)?.to_owned()).map_err(|_| Malformed)?;
        if self.byte()? == 0 { Ok(text) } else { Err(Malformed) }
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.saturating_add(to - 1) / to * to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call<'_> = Call { destination: "a.b", path: "/a", interface: "a.c", member: "Do", signature: "s" };

    /// A reply as a bus writes it.
    fn reply_message(kind: u8, fields: &[(u8, &str, &str)], reply_to: u32, signature: &str, body: &Body) -> Vec<u8> {
        let mut head = Body::default();
        head.0.extend_from_slice(&[5]);
        head.signature("u");
        head.u32(reply_to);
        for (code, kind, value) in fields {
            head.align(8);
            head.0.push(*code);
            head.signature(kind);
            head.text(value);
        }
        head.align(8);
        head.0.push(8);
        head.signature("g");
        head.signature(signature);
        let mut message = Body(vec![b'l', kind, 1, 1]);
        message.u32(length(&body.0));
        message.u32(7);
        message.u32(length(&head.0));
        message.0.extend_from_slice(&head.0);
        message.align(8);
        message.0.extend_from_slice(&body.0);
        message.0
    }

    fn texts(all: &[&str]) -> Body {
        let mut body = Body::default();
        all.iter().for_each(|text| body.text(text));
        body
    }

    #[test]
    fn calls_have_the_layout_of_the_specification() {
        let bytes = call(&CALL, 1, &texts(&["x"]));
        let expected: Vec<u8> = [
            &b"l\x01\0\x01\x06\0\0\0\x01\0\0\0\x47\0\0\0"[..],
            b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0",
            b"\x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0",
            b"\x02\x01s\0\x03\0\0\0a.c\0\0\0\0\0",
            b"\x03\x01s\0\x02\0\0\0Do\0\0\0\0\0\0",
            b"\x08\x01g\0\x01s\0\0",
            b"\x01\0\0\0x\0",
        ]
        .concat();
        assert_eq!(bytes, expected);
        let head: &[u8; FIXED_HEADER_BYTES] = bytes.first_chunk().unwrap();
        assert_eq!(message_length(head), Ok(bytes.len()));
    }

    #[test]
    fn properties_are_aligned_at_any_offset() {
        let mut body = Body::default();
        body.text("abc");
        body.properties(&[("M", Variant::U64(5)), ("W", Variant::Texts(&["u"])), ("B", Variant::Bool(true))]);
        let expected: Vec<u8> = [
            &b"\x03\0\0\0abc\0"[..],
            b"\x40\0\0\0\0\0\0\0",
            b"\x01\0\0\0M\0\x01t\0\0\0\0\0\0\0\0",
            b"\x05\0\0\0\0\0\0\0",
            b"\x01\0\0\0W\0\x02as\0\0\0\x06\0\0\0\x01\0\0\0u\0\0\0",
            b"\x01\0\0\0B\0\x01b\0\0\0\0\x01\0\0\0",
        ]
        .concat();
        assert_eq!(body.0, expected);
    }

    fn of(kind: Kind, sender: &str, arguments: Vec<Value>) -> Result<Message, Malformed> {
        Ok(Message { kind, sender: sender.to_owned(), arguments })
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn replies_errors_and_signals_are_distinguished() {
        let back = reply_message(2, &[(7, "s", ":1.1")], 9, "o", &texts(&["/job/1"]));
        assert_eq!(read(&back), of(Kind::Return { to: 9 }, ":1.1", vec![text("/job/1")]));
        let wrong = reply_message(3, &[(4, "s", "a.Exists")], 9, "s", &texts(&["it is there"]));
        let name = "a.Exists".to_owned();
        assert_eq!(read(&wrong), of(Kind::Error { to: 9, name }, "", vec![text("it is there")]));
        let mut body = Body::default();
        body.u32(12);
        ["/job/1", "a.slice", "done"].iter().for_each(|text| body.text(text));
        let signal = reply_message(4, &[(1, "o", "/a"), (3, "s", "JobRemoved")], 0, "uoss", &body);
        let arguments = vec![Value::U32(12), text("/job/1"), text("a.slice"), text("done")];
        assert_eq!(read(&signal), of(Kind::Signal { member: "JobRemoved".to_owned() }, "", arguments));
    }

    #[test]
    fn variants_are_unwrapped_and_unknown_types_end_the_arguments() {
        let mut body = Body::default();
        body.variant(Variant::U64(5_000_000));
        body.variant(Variant::Bool(true));
        body.u32(0);
        body.variant(Variant::Texts(&["a"]));
        body.bool(true);
        let arguments = vec![Value::U64(5_000_000), Value::Bool(true), Value::Fd(0)];
        assert_eq!(read(&reply_message(2, &[], 1, "vvhvb", &body)), of(Kind::Return { to: 1 }, "", arguments));
    }

    #[test]
    fn truncated_and_damaged_messages_never_panic() {
        let mut body = Body::default();
        body.u32(12);
        ["/job/1", "a.slice"].iter().for_each(|text| body.text(text));
        let whole = reply_message(4, &[(1, "o", "/a"), (3, "s", "JobRemoved")], 0, "uos", &body);
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Err(Malformed), "cut at {end}");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 7, 127, 255] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = read(&changed);
            }
        }
        let mut long = [0; FIXED_HEADER_BYTES];
        long[0] = b'l';
        long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(message_length(&long), Err(Malformed));
        long[0] = b'B';
        assert_eq!(message_length(&long), Err(Malformed));
    }
}
