//! Prints an error with its causes. Pure.

use std::error::Error;
use std::fmt;

/// Prints an error and all of its sources on one line, separated by `: `.
///
/// Every error of this crate leaves its cause to `source`, so each part is printed once.
#[derive(Debug)]
pub(crate) struct ErrorChain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("write memory.max of kubepods/pod1")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn each_error_of_a_chain_is_printed_once() {
        let error = Outer(io::Error::from_raw_os_error(22));
        assert_eq!(ErrorChain(&error).to_string(), "write memory.max of kubepods/pod1: Invalid argument (os error 22)");
    }
}
