//! Expands `$(VAR)` in commands, arguments and environment values. Pure.

use core::fmt;

use super::Texts;

/// The longest argument or variable that exec(2) accepts (`MAX_ARG_STRLEN`), with its terminating NUL. Variables that
/// refer to each other twice would double in size at each step.
pub const MAX_ARGUMENT_BYTES: usize = 128 << 10;

/// The kernel's limit for arguments and environment together: three quarters of the default stack limit.
pub const MAX_ENVIRONMENT_BYTES: usize = 6 << 20;

/// Words exceed the kernel's limit, for which exec would only report that the argument list is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandTooLong;

impl fmt::Display for CommandTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("command and args exceed the kernel's size limit")
    }
}

/// Expands the words of a command. `bytes` counts the size of the program's arguments.
pub fn expand_command<'a>(
    words: &Texts,
    bytes: &mut usize,
    value: &dyn Fn(&str) -> Option<&'a [u8]>,
) -> Result<Vec<String>, CommandTooLong> {
    let expand = |word: &str| {
        let expanded = expand_bytes(word, MAX_ARGUMENT_BYTES, &mut |name| value(name));
        *bytes += expanded.len();
        if expanded.len() >= MAX_ARGUMENT_BYTES || *bytes > MAX_ENVIRONMENT_BYTES {
            return Err(CommandTooLong);
        }
        Ok(text_of(expanded))
    };
    words.iter().map(expand).collect()
}

/// Variables may have any bytes, commands and paths only text.
pub fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Replaces each `$(NAME)` by its value; a name without a value is left as written. A result of `most` bytes or more is
/// not expanded further.
///
/// `$$` is an escaped dollar sign: `$$(NAME)` is never expanded.
pub fn expand_bytes<'a>(text: &str, most: usize, value: &mut dyn FnMut(&str) -> Option<&'a [u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    // Searched once: many references without an end would each read the rest of the text.
    let last_end = text.rfind(')').unwrap_or(0);
    while let Some((before, after)) = rest.split_once('$') {
        if out.len() >= most {
            return out;
        }
        out.extend_from_slice(before.as_bytes());
        let may_end = text.len() - after.len() <= last_end;
        let reference = after.strip_prefix('(').filter(|_| may_end).and_then(|open| open.split_once(')'));
        rest = if let Some(after) = after.strip_prefix('$') {
            out.push(b'$');
            after
        } else if let Some((name, after)) = reference {
            match value(name) {
                Some(value) => out.extend_from_slice(value),
                None => ["$(", name, ")"].iter().for_each(|part| out.extend_from_slice(part.as_bytes())),
            }
            after
        } else {
            out.push(b'$');
            after
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let value = |name: &str| match name {
            "A" => Some(&b"1"[..]),
            "EMPTY" => Some(&b""[..]),
            "REF" => Some(&b"$(A)"[..]),
            _ => None,
        };
        assert_eq!(expand_bytes(text, MAX_ARGUMENT_BYTES, &mut { value }), expected.as_bytes());
    }

    #[test]
    fn references_expand_once_and_unknown_ones_stay() {
        check("$(A)", "1");
        check("x$(A)y$(A)", "x1y1");
        check("$(A)-$(UNSET)-$$(A)", "1-$(UNSET)-$(A)");
        check("[$(EMPTY)]", "[]");
        check("$(REF)", "$(A)");
        check("é$(A)é", "é1é");
    }

    #[test]
    fn dollar_signs_escape_and_other_text_stays() {
        check("$$", "$");
        check("$$$$(A)", "$$(A)");
        check("$$$(A)", "$1");
        check("$", "$");
        check("5$", "5$");
        check("$x", "$x");
        check("$(A", "$(A");
        check("$(", "$(");
        check("$()", "$()");
        check("$(A$(A)", "$(A$(A)");
        check("$(A)$(A$(A", "1$(A$(A");
        check("$A", "$A");
    }
}
