//! Encoding and decoding of each Rust type that a field may have. Pure.

use std::fmt;

use super::encode;
use super::{Message, OpenEnum};
use crate::types::sorted::SortedMap;

/// A Rust type that can be a field of a message.
pub trait Field {
    /// Appends the field, unless it has its default value.
    fn put(&self, number: u32, out: &mut Vec<u8>);

    /// The slot that receives the field's next value. Always `Some`: the type is that of [`Message::slot`].
    fn slot(&mut self) -> Option<Slot<'_>>;

    /// The value as Go's `json` package shows it; `None` for a default.
    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value>;
}

/// A destination for a decoded value, by type.
pub enum Slot<'a> {
    Bool(&'a mut bool),
    I32(&'a mut i32),
    I64(&'a mut i64),
    U32(&'a mut u32),
    U64(&'a mut u64),
    F64(&'a mut f64),
    Enum(&'a mut dyn OpenEnum),
    String(&'a mut String),
    Bytes(&'a mut Vec<u8>),
    Message(&'a mut dyn Message),
    WrappedI64(&'a mut i64),
    WrappedU64(&'a mut u64),
    I32s(&'a mut Vec<i32>),
    I64s(&'a mut Vec<i64>),
    Map(&'a mut SortedMap<String, String>),
}

impl fmt::Debug for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

/// Fields that are one number on the wire.
macro_rules! scalar {
    ($($type:ty, $slot:ident, $put:ident;)*) => { $(
        impl Field for $type {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                encode::$put(number, (*self).into(), out);
            }

            fn slot(&mut self) -> Option<Slot<'_>> {
                Some(Slot::$slot(self))
            }

            #[cfg(test)]
            fn json(&self) -> Option<serde_json::Value> {
                (*self != Self::default()).then(|| (*self).into())
            }
        }
    )* };
}

scalar! {
    bool, Bool, put_unsigned;
    i32, I32, put_signed;
    i64, I64, put_signed;
    u32, U32, put_unsigned;
    u64, U64, put_unsigned;
    f64, F64, put_double;
}

impl Field for String {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        encode::put_str(number, self, out);
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        Some(Slot::String(self))
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        (!self.is_empty()).then(|| self.as_str().into())
    }
}

impl Field for Vec<u8> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        if !self.is_empty() {
            encode::put_bytes(number, self, out);
        }
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        Some(Slot::Bytes(self))
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        (!self.is_empty()).then(|| String::from_utf8_lossy(self).into())
    }
}

impl<M: Message + Default> Field for Option<M> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        if let Some(message) = self {
            encode::put_message(number, message, out);
        }
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        Some(Slot::Message(self.get_or_insert_default()))
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        self.as_ref().map(Message::json)
    }
}

/// The wrapper messages: optional numbers.
macro_rules! wrapped {
    ($($type:ty, $slot:ident, $put:ident;)*) => { $(
        impl Field for Option<$type> {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                if let Some(value) = *self {
                    encode::put_nested(number, out, &|out| encode::$put(1, value, out));
                }
            }

            fn slot(&mut self) -> Option<Slot<'_>> {
                Some(Slot::$slot(self.get_or_insert_default()))
            }

            #[cfg(test)]
            fn json(&self) -> Option<serde_json::Value> {
                let value = (*self)?;
                Some(if value == 0 { serde_json::json!({}) } else { serde_json::json!({ "value": value }) })
            }
        }
    )* };
}

wrapped! {
    i64, WrappedI64, put_signed;
    u64, WrappedU64, put_unsigned;
}

impl<M: Message + Default> Field for Vec<M> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        for message in self {
            encode::put_message(number, message, out);
        }
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        self.push(M::default());
        self.last_mut().map(|message| Slot::Message(message))
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        (!self.is_empty()).then(|| self.iter().map(Message::json).collect())
    }
}

impl Field for Vec<String> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        for text in self {
            encode::put_bytes(number, text.as_bytes(), out);
        }
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        self.push(String::new());
        self.last_mut().map(Slot::String)
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        (!self.is_empty()).then(|| self.iter().map(String::as_str).collect())
    }
}

/// Repeated numbers are written packed.
macro_rules! packed {
    ($($type:ty, $slot:ident;)*) => { $(
        impl Field for Vec<$type> {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                if !self.is_empty() {
                    encode::put_nested(number, out, &|out| {
                        for value in self {
                            encode::put_sign_extended((*value).into(), out);
                        }
                    });
                }
            }

            fn slot(&mut self) -> Option<Slot<'_>> {
                Some(Slot::$slot(self))
            }

            #[cfg(test)]
            fn json(&self) -> Option<serde_json::Value> {
                (!self.is_empty()).then(|| self.iter().copied().collect())
            }
        }
    )* };
}

packed! {
    i32, I32s;
    i64, I64s;
}

impl Field for SortedMap<String, String> {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        for (key, value) in self {
            encode::put_nested(number, out, &|out| {
                encode::put_bytes(1, key.as_bytes(), out);
                encode::put_bytes(2, value.as_bytes(), out);
            });
        }
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        Some(Slot::Map(self))
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        let pairs = || self.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        (!self.is_empty()).then(|| serde_json::Value::Object(pairs()))
    }
}
