//! `coracle support`: one archive for the person who helps.
//!
//! ```text
//!   collect.rs        answers of the agent, logs, configuration, state, kernel
//!   redact_value.rs   objects without secrets                                     pure
//!   redact_text.rs    text without secrets                                        pure
//!   bundle.rs         the gzipped tar, of bounded size
//! ```

mod bundle;
mod collect;
mod redact_text;
mod redact_value;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::command_table::Support;
use super::doctor::{agent_settings, diagnose, settings};
use super::{failed, help, print};
use crate::platform::config;
use crate::platform::host::clock;

use bundle::Bundle;
use collect::Part;

pub(super) fn run(command: &Support) -> ExitCode {
    let archive = match archive(command) {
        Ok(archive) => archive,
        Err(error) => return failed(&format!("make the archive: {error}")),
    };
    if command.output.as_deref() == Some(Path::new("-")) {
        return match io::stdout().write_all(&archive) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&format!("write to stdout: {error}")),
        };
    }
    let path = command.output.clone().unwrap_or_else(default_path);
    if let Err(error) = write(&path, &archive) {
        return failed(&format!("write {}: {error}", path.display()));
    }
    let size = archive.len().div_ceil(1024);
    print(&format!("{} ({size} KiB): look through it before you send it\n", path.display()))
}

/// Such as `coracle-support-edge-7-20260102-030405.tar.gz` in the current directory.
fn default_path() -> PathBuf {
    let node = config::host_node_name().unwrap_or_else(|_| "node".to_owned());
    let digits = |c: &char| c.is_ascii_digit() || *c == 'T';
    let time: String =
        clock::now().to_string().chars().filter(digits).map(|c| if c == 'T' { '-' } else { c }).collect();
    PathBuf::from(format!("coracle-support-{node}-{time}.tar.gz"))
}

/// Only this user may read it. An older file of the same name is not overwritten.
fn write(path: &Path, archive: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(archive)
}

fn archive(command: &Support) -> io::Result<Vec<u8>> {
    let running = agent_settings::running(&command.local_socket);
    let flags = match running {
        Some((_, flags)) if command.agent_flags.is_empty() => flags,
        None if command.agent_flags.is_empty() => agent_settings::of_service(Path::new("/")).0,
        Some(_) | None => command.agent_flags.clone(),
    };
    let (config, problem) = match settings(&flags) {
        Ok((config, _)) => (config, None),
        Err(error) => (Box::default(), Some(error)),
    };
    let diagnosis = diagnose(&command.local_socket, &command.agent_flags);
    let mut parts: Vec<Part> = vec![
        ("README.txt".to_owned(), Ok(README.to_owned())),
        ("versions.txt".to_owned(), Ok(format!("{}{}\n", help::version(false), clock::now()))),
        ("doctor.txt".to_owned(), Ok(diagnosis.text())),
    ];
    parts.extend(problem.map(|error| ("config/error.txt".to_owned(), Ok(redact_text::redact_text(&error)))));
    parts.extend(collect::of_agent(&command.local_socket));
    parts.extend(collect::logs());
    parts.extend(collect::configuration(&config, &flags));
    parts.extend(collect::state(&config.root_dir));
    parts.extend(collect::kernel());
    if !command.no_container_logs {
        parts.extend(collect::container_logs(&config.logs.pods_dir));
    }
    bundle(parts)
}

fn bundle(parts: Vec<Part>) -> io::Result<Vec<u8>> {
    let (mut bundle, mut missing) = (Bundle::new(), String::new());
    for (name, part) in parts {
        match part {
            Ok(text) => bundle.add(&name, &text)?,
            Err(error) => missing.push_str(&format!("{name}: {error}\n")),
        }
    }
    bundle.add("missing.txt", &missing)?;
    bundle.finish()
}

const README: &str = "\
A node that runs Coracle, as `coracle support` saw it.

doctor.txt                what `coracle doctor` finds wrong with this machine
status.json, events.json  what is wrong with the node and its pods, and recent events
pods.json, images.json, devices.json, stats-summary.json
configz.json, metrics.txt the effective configuration, and the agent's metrics
logs/                     ends of the logs of agent, runtime, kernel and containers
config/, manifests/       configuration and manifests
state/                    checkpoints, and a list of the agent's files
kernel/                   files of the kernel and the distribution
missing.txt               what could not be read, and why
cut.txt                   what was shortened, if anything

Values of variables, data of Secrets and ConfigMaps, annotations, tokens, private keys, passwords in URLs and fields
that are named like a secret are replaced by REDACTED. Programs may log secrets in other forms: look through logs/
before you send the archive.
";
