//! The binary: hands over to the library at once.

use std::process::ExitCode;

fn main() -> ExitCode {
    coracle::main()
}
