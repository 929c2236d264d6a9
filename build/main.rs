//! Generates the help texts, shell completions, manual page and table of flags from the declarations of commands and
//! flags, and compresses the files that the program embeds: help texts, completions, feature gates and the status page.
//! Also computes the digests of the page's script and style for the Content-Security-Policy.
#![expect(clippy::expect_used, reason = "a panic stops the build with its message")]

#[macro_use]
mod texts;

#[path = "../src/cli/shared_flags.rs"]
#[macro_use]
mod shared_flags;
#[path = "../src/cli/machine_commands.rs"]
#[macro_use]
mod machine_commands;
#[path = "../src/cli/command_table.rs"]
mod command_table;
mod completion;
#[path = "../src/platform/config/flag_table.rs"]
mod flag_table;
mod help;
mod manual;
mod reference;

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

const PAGE: &str = "src/control/server/status_page/page.html";
const FEATURE_GATES: &str = "src/platform/config/feature_gates.txt";
const MANUAL_TEMPLATE: &str = "man/coracle.8.in";

fn main() {
    println!("cargo::rerun-if-changed={PAGE}");
    for path in ["build", MANUAL_TEMPLATE, FEATURE_GATES, "src/platform/config/flag_table.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for path in ["src/cli/command_table.rs", "src/cli/machine_commands.rs", "src/cli/shared_flags.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let page = fs::read_to_string(PAGE).expect("the page is in the tree");
    for (name, element) in [("SCRIPT", "script"), ("STYLE", "style")] {
        let inside = inside(&page, element).expect("the page has one script and one style");
        println!("cargo::rustc-env=CORACLE_PAGE_{name}=sha256-{}", base64(&Sha256::digest(inside)));
    }
    pack("page.html", &page);
    reference::check_summaries();
    write("flags.tsv", reference::flags().as_bytes());
    let template = fs::read_to_string(MANUAL_TEMPLATE).expect("the template is in the tree");
    write("coracle.8", manual::page(&template).as_bytes());
    // In the order of src/cli/texts.rs.
    let scripts = [("bash", completion::bash()), ("fish", completion::fish()), ("zsh", completion::zsh())];
    for (shell, script) in &scripts {
        // `tests/manual.rs` reads it.
        write(&format!("coracle.{shell}"), script.as_bytes());
    }
    let texts: Vec<String> = scripts.into_iter().map(|(_, script)| script).chain([help::all()]).collect();
    pack("texts", &texts.join("\u{c}"));
    let gates = fs::read_to_string(FEATURE_GATES).expect("the feature gates are in the tree");
    pack("feature_gates", &gates);
}

fn pack(name: &str, text: &str) {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).expect("a vector accepts all bytes");
    let packed = packed.finish().expect("a vector accepts all bytes");
    write(&format!("{name}.gz"), &packed);
}

fn write(name: &str, bytes: &[u8]) {
    let folder = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join(name), bytes).expect("OUT_DIR is writable");
}

/// The content of the only element with this name.
fn inside<'a>(page: &'a str, element: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("<{element}>"))?;
    let (inside, rest) = rest.split_once(&format!("</{element}>"))?;
    (!rest.contains(&format!("<{element}"))).then_some(inside)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit =
        |three: u32, shift: u32| char::from(DIGITS.get((three >> shift & 63) as usize).copied().unwrap_or_default());
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or_default());
        let three = byte(0) << 16 | byte(1) << 8 | byte(2);
        text.extend([digit(three, 18), digit(three, 12)]);
        text.push(if part.len() > 1 { digit(three, 6) } else { '=' });
        text.push(if part.len() > 2 { digit(three, 0) } else { '=' });
    }
    text
}
