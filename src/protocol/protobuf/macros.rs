//! Macros that declare messages and enums as tables.

/// Declares structs that are protobuf messages: `number => field: Type`.
///
/// ```ignore
/// message! {
///     /// Where a pod's traffic enters.
///     pub struct PortMapping {
///         1 => protocol: Protocol,
///         2 => container_port: i32,
///     }
/// }
/// ```
macro_rules! message {
    ($(
        $(#[$about:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$about_field:meta])* $number:literal => $field:ident: $type:ty, )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $vis struct $name {
            $( $(#[$about_field])* $vis $field: $type, )*
        }

        impl $crate::protocol::protobuf::Message for $name {
            fn put_fields(&self, out: &mut Vec<u8>) {
                $( $crate::protocol::protobuf::Field::put(&self.$field, $number, out); )*
                // A message without fields writes nothing.
                let _ = out;
            }

            fn slot(&mut self, number: u32) -> Option<$crate::protocol::protobuf::Slot<'_>> {
                match number {
                    $( $number => $crate::protocol::protobuf::Field::slot(&mut self.$field), )*
                    _ => None,
                }
            }

            #[cfg(test)]
            fn json(&self) -> serde_json::Value {
                let values: &[Option<serde_json::Value>] = &[$( $crate::protocol::protobuf::Field::json(&self.$field) ),*];
                let named = self.fields().iter().zip(values.iter().cloned());
                let present = named.filter_map(|((_, name), value)| Some((name.trim_start_matches("r#").to_owned(), value?)));
                serde_json::Value::Object(present.collect())
            }

            #[cfg(test)]
            fn fields(&self) -> &'static [(u32, &'static str)] {
                &[$( ($number, stringify!($field)) ),*]
            }
        }
    )* };
}

/// Declares enums that keep unknown numbers: `Name = number`. The first variant is the default and must be 0.
///
/// Adds a variant `Unrecognized` for the numbers without a name.
macro_rules! open_enum {
    ($(
        $(#[$about:meta])*
        $vis:vis enum $name:ident {
            $(#[$about_first:meta])* $first:ident = 0,
            $( $(#[$about_variant:meta])* $variant:ident = $number:literal, )*
        }
    )*) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis enum $name {
            $(#[$about_first])*
            #[default]
            $first,
            $( $(#[$about_variant])* $variant, )*
            /// A number without a name here; never one of the numbers above.
            Unrecognized(i32),
        }

        impl $crate::protocol::protobuf::OpenEnum for $name {
            fn number(&self) -> i32 {
                match *self {
                    Self::$first => 0,
                    $( Self::$variant => $number, )*
                    Self::Unrecognized(number) => number,
                }
            }

            fn set_number(&mut self, number: i32) {
                *self = match number {
                    0 => Self::$first,
                    $( $number => Self::$variant, )*
                    other => Self::Unrecognized(other),
                };
            }
        }

        impl $crate::protocol::protobuf::Field for $name {
            fn put(&self, number: u32, out: &mut Vec<u8>) {
                let value = $crate::protocol::protobuf::OpenEnum::number(self);
                $crate::protocol::protobuf::Field::put(&value, number, out);
            }

            fn slot(&mut self) -> Option<$crate::protocol::protobuf::Slot<'_>> {
                Some($crate::protocol::protobuf::Slot::Enum(self))
            }

            #[cfg(test)]
            fn json(&self) -> Option<serde_json::Value> {
                $crate::protocol::protobuf::Field::json(&$crate::protocol::protobuf::OpenEnum::number(self))
            }
        }
    )* };
}

pub(crate) use {message, open_enum};
