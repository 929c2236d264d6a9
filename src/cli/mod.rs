//! The command line: the agent, and the client commands.
//!
//! Without a command, it accepts the upstream kubelet's flags. Exit codes: 0 success, 1 failure, 2 usage error;
//! `exec` returns the exit code of the command.

mod age;
mod agent;
mod aliases;
mod apply;
mod claims;
mod cluster_flags;
mod colours;
#[macro_use]
mod shared_flags;
#[macro_use]
mod command_parser;
#[macro_use]
mod machine_commands;
mod command_table;
mod commands;
mod completion;
mod copy;
mod delete;
mod describe;
mod devices;
mod diff;
mod doctor;
mod events;
mod find_pod;
mod fleet;
mod gc_variables;
mod help;
mod images;
mod import_archives;
mod jobs;
mod join;
mod json_path;
mod leave;
mod local_api;
mod logs;
mod manifest_files;
mod manifest_warnings;
mod outputs;
mod page_token;
mod pod_name;
mod pod_row;
mod pods;
mod ports;
mod problem_lines;
mod replace;
mod restart;
mod rollout;
mod runtime_config;
mod seal;
mod selector;
mod service;
mod status;
mod streams;
mod support;
mod sync;
mod table;
mod texts;
mod top;
mod upgrade;
mod validate;
mod versions;
mod wait;
mod workload_words;

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use command_table::Command;
use commands::ParsedCommand;
use outputs::VersionOutput;

use crate::control::server::systemd;

/// Entry point of the binary.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let program = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    match commands::parse(&arguments) {
        Ok(ParsedCommand::Agent) if arguments.is_empty() && is_terminal() && !is_kubelet(&program) => {
            print(&help::text())
        }
        // kubectl runs its plugin without a terminal too, and means no agent.
        Ok(ParsedCommand::Agent) if is_plugin(&program) => match arguments.is_empty() {
            true => print(&help::text()),
            false => misused("kubectl coracle: expected a command, as fleet or rollout"),
        },
        Ok(ParsedCommand::Agent) => agent::run(&arguments, is_kubelet(&program)),
        Ok(ParsedCommand::Help(text)) => print(&text),
        Ok(ParsedCommand::Command(command)) => match command {
            Command::Apply(command) => apply::run(&command),
            Command::Delete(command) => delete::run(&command),
            Command::Attach(command) => streams::attach(&command),
            Command::Completion(command) => print(&completion::script(command.shell)),
            Command::Copy(command) => copy::run(&command),
            Command::Describe(command) => describe::run(&command),
            Command::Doctor(command) => doctor::run(&command),
            Command::Diff(command) => diff::run(&command),
            Command::Wait(command) => wait::run(&command),
            Command::Events(command) => events::run(&command),
            Command::Exec(command) => streams::exec(&command),
            Command::Fleet(command) => fleet::run(&command),
            Command::Claims(command) => claims::run(&command),
            Command::ListJobs(command) => jobs::run(&command),
            Command::ListDevices(command) => devices::run(&command),
            Command::ListImages(command) => images::run(&command),
            Command::Join(command) => join::run(&command),
            Command::Replace(command) => replace::run(&command),
            Command::Leave(command) => leave::run(&command),
            Command::Logs(command) => logs::run(&command),
            Command::PageToken(command) => page_token::run(&command),
            Command::Pods(command) => pods::run(&command),
            Command::Restart(command) => restart::run(&command),
            Command::Seal(command) => seal::run(&command),
            Command::Rollout(command) => rollout::run(&command),
            Command::RuntimeConfig(command) => runtime_config::run(&command),
            Command::Rerun(command) => versions::rerun(&command),
            Command::Stop(command) => versions::stop(&command),
            Command::Start(command) => versions::start(&command),
            Command::Rollback(command) => versions::rollback(&command),
            Command::Hold(command) => versions::hold(&command),
            Command::Confirm(command) => versions::confirm(&command),
            Command::PortForward(command) => streams::port_forward(&command),
            Command::Status(command) => status::run(&command),
            Command::Support(command) => support::run(&command),
            Command::Sync(command) => sync::run(&command),
            Command::Top(command) => top::run(&command),
            Command::Upgrade(command) => upgrade::run(&command),
            Command::Config(command) => upgrade::configure(&command),
            Command::Validate(command) => validate::run(&command),
            Command::Version(command) => match command.output {
                VersionOutput::Text => print(&help::version(is_kubelet(&program))),
                VersionOutput::Json => print(&help::version_json()),
            },
        },
        Err(line) => misused(&line),
    }
}

/// Whether a person calls, who gets the help instead of an agent.
fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Prints the text, with the colours of `paint` if stdout is a terminal that shows them (no-color.org).
fn print_painted(text: &str, paint: impl FnOnce(&str) -> String) -> ExitCode {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb {
        true => print(&paint(text)),
        false => print(text),
    }
}

/// Whether the binary is called as `kubelet`, whose output other programs parse.
fn is_kubelet(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "kubelet")
}

/// Whether kubectl calls the binary as its plugin.
fn is_plugin(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "kubectl-coracle")
}

/// Writes to stdout. A closed pipe (`| head`) is not a failure.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&format!("write to stdout: {error}")),
    }
}

fn failed(line: &str) -> ExitCode {
    complain(line);
    ExitCode::FAILURE
}

fn misused(line: &str) -> ExitCode {
    complain(line);
    ExitCode::from(2)
}

/// Exit statuses of `coracle status` beside success.
const DEGRADED_STATUS: u8 = 3;
const DOWN_STATUS: u8 = 4;

/// Prints one line to stderr, with error priority for the journal. A failed write is ignored.
fn complain(line: &str) {
    let priority = if systemd::stderr_is_journal() { "<3>" } else { "" };
    let _ = io::stderr().write_all(format!("{priority}coracle: {line}\n").as_bytes());
}
