//! Protocol buffers, proto3 wire format. Pure.
//!
//! A message is a plain struct declared with a table of its fields by [`message!`]. The macro generates two short
//! functions, one that writes the fields and one that finds the slot of a field number. All other code is shared by
//! all messages, so each message costs little code.
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

mod cut;
mod decode;
mod encode;
mod field;
mod macros;
#[cfg(test)]
pub(crate) mod random;
#[cfg(test)]
mod tests;

pub use cut::Cutter;
pub use decode::{DecodeError, decode, decode_into, each_field};
pub use encode::{encode, put_bytes, put_message, put_str};
pub use field::{Field, Slot};
pub(crate) use macros::{message, open_enum};

/// A struct declared with [`message!`].
pub trait Message {
    /// Appends every field that differs from its default.
    fn put_fields(&self, out: &mut Vec<u8>);

    /// The slot for the next value of field `number`; `None` if the message has no such field.
    ///
    /// For a list of strings or messages, appends an entry and returns its slot.
    fn slot(&mut self, number: u32) -> Option<Slot<'_>>;

    /// The fields that differ from their defaults, as Go's `json` package shows them; enums are numbers.
    #[cfg(test)]
    fn json(&self) -> serde_json::Value;

    /// The number and name of each field.
    #[cfg(test)]
    fn fields(&self) -> &'static [(u32, &'static str)];
}

/// An enum declared with [`open_enum!`]: every number has a value.
pub trait OpenEnum {
    fn number(&self) -> i32;
    fn set_number(&mut self, number: i32);
}
