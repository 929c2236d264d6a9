//! The effects of flags, and the macro that makes the parser's table of `flag_table.rs`. Pure.

use std::path::PathBuf;

use super::flag_values::FlagValues;
use super::schema::Kind;

/// The effect of a flag.
#[derive(Debug)]
pub(super) enum FlagEffect {
    /// Sets the configuration field at this path. Overrides every file.
    Field(&'static str),
    /// Sets a path that has no field. An empty value unsets it.
    Path(fn(&mut FlagValues) -> &mut Option<PathBuf>),
    /// Sets a bool that has no field.
    Switch(fn(&mut FlagValues) -> &mut bool),
    /// Sets anything else that has no field. The function returns what was expected.
    Own(Kind, fn(&mut FlagValues, &str) -> Result<(), String>),
    /// Accepted and reported, but not supported yet.
    NotYet(Kind),
    /// Accepted for old command lines with a warning: the setting no longer exists.
    Gone(Kind, &'static str),
    /// Refused, because ignoring it would be worse than not starting.
    Refused(Kind),
}

/// Makes `FLAGS`, and leaves out the texts, which only the build script needs.
macro_rules! flags {
    (
        $($section:literal $(introduced_by $introduction:literal)? {
            $($name:literal: $effect:ident($($argument:tt)*) => $text:expr;)*
        })*
        not_in_the_help {
            $($other:literal: $other_effect:ident($($other_argument:tt)*) $(=> $other_text:expr)?;)*
        }
    ) => {
        use super::flag_effect::FlagEffect;
        use super::flag_values::FlagValues;
        use super::schema::Kind;

        /// All flags by name, without the dashes.
        pub(super) const FLAGS: &[(&str, FlagEffect)] = &[
            $($(($name, effect!($effect $($argument)*)),)*)*
            $(($other, effect!($other_effect $($other_argument)*)),)*
        ];
    };
}

macro_rules! effect {
    (field $path:literal) => {
        FlagEffect::Field($path)
    };
    (path $field:ident) => {
        FlagEffect::Path(|given| &mut given.$field)
    };
    (switch $field:ident) => {
        FlagEffect::Switch(|given| &mut given.$field)
    };
    (own $kind:expr, $set:ident) => {
        FlagEffect::Own($kind, FlagValues::$set)
    };
    (not_yet $kind:expr) => {
        FlagEffect::NotYet($kind)
    };
    (gone $kind:expr, $reason:literal) => {
        FlagEffect::Gone($kind, $reason)
    };
    (refused $kind:expr) => {
        FlagEffect::Refused($kind)
    };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::check::field;
    use super::super::flag_table::FLAGS;
    use super::*;

    #[test]
    fn flags_set_only_fields_of_the_schema() {
        for (flag, effect) in FLAGS {
            if let FlagEffect::Field(path) = effect {
                assert!(field(path).is_some(), "--{flag} sets {path}");
            }
        }
    }

    #[test]
    fn no_flag_is_declared_twice() {
        let names: BTreeSet<&str> = FLAGS.iter().map(|(flag, _)| *flag).collect();
        assert_eq!(names.len(), FLAGS.len());
    }
}
