//! Protocol buffers, proto3 wire format. Pure.
//!
//! A message is a plain struct with a table of its fields, written with [`message!`]. The table becomes two short
//! functions: one that puts each field, one that finds the place of a field by its number. All else is shared by
//! every message, so a further message costs little code.
//!
//! | proto3 | Rust |
//! |---|---|
//! | `string`, `bytes`, `bool`, `double` | `String`, `Vec<u8>`, `bool`, `f64` |
//! | `int32`, `int64`, `uint32`, `uint64` | `i32`, `i64`, `u32`, `u64` |
//! | `Int64Value`, `UInt64Value` | `Option<i64>`, `Option<u64>` |
//! | enum | an enum made with [`open_enum!`] |
//! | message `M` | `Option<M>` |
//! | `repeated` | `Vec`, of messages, strings, `i32` or `i64` |
//! | `map<string, string>` | `SortedMap<String, String>` |

mod decode;
mod encode;
mod field;
mod macros;
#[cfg(test)]
pub(crate) mod random;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, decode, decode_into};
pub use encode::{encode, put_message, put_str};
pub use field::{Field, Slot};
pub(crate) use macros::{message, open_enum};

/// A struct that [`message!`] has made.
pub trait Message {
    /// Appends every field that differs from its default.
    fn put_fields(&self, out: &mut Vec<u8>);

    /// The place where field `number` is to be read to; `None` if this message has no such field.
    ///
    /// A place in a list of strings or messages is a new one at its end.
    fn slot(&mut self, number: u32) -> Option<Slot<'_>>;

    /// The fields that differ from their defaults, as Go's `json` package would show them; enums are numbers.
    #[cfg(test)]
    fn json(&self) -> serde_json::Value;

    /// The number and name of each field.
    #[cfg(test)]
    fn fields(&self) -> &'static [(u32, &'static str)];
}

/// An enum that [`open_enum!`] has made: every number has a value.
pub trait OpenEnum {
    fn number(&self) -> i32;
    fn set_number(&mut self, number: i32);
}
