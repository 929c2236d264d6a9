//! `coracle doctor`: what this machine lacks for pods, before and after the installation.
//!
//! ```text
//!   kernel_reader.rs  machine_reader.rs  runtime_reader.rs    read facts
//!   facts.rs                                                  the facts                    pure
//!   board.rs  kernel.rs  lean.rs  node.rs  runtime.rs        judge them                   pure
//!   finding.rs                                                the findings, and their text pure
//! ```

pub(super) mod agent_settings;
mod board;
mod facts;
mod finding;
mod kernel;
mod kernel_config;
mod kernel_reader;
mod lean;
mod machine_reader;
mod node;
mod runtime;
mod runtime_reader;

use std::path::Path;
use std::process::ExitCode;

use super::cluster_flags::with_cluster_flags;
use super::command_table::Doctor;
use super::outputs::TopOutput;
use super::{DEGRADED_STATUS, DOWN_STATUS, colours, failed, print, print_painted};
use crate::platform::config::{self, Config, KeptIdentity, Request};
use crate::platform::host::board_identity;
use crate::types::error::ErrorChain;

use finding::Finding;
pub(super) use finding::{Diagnosis, Verdict};

/// Ends with 0 if all is well, 3 with warnings, 4 if something failed, as `coracle status`.
pub(super) fn run(command: &Doctor) -> ExitCode {
    let diagnosis = diagnose(&command.local_socket, &command.agent_flags);
    if command.first_start {
        return first_start(&diagnosis, &command.agent_flags);
    }
    let printed = match command.output {
        TopOutput::Table => print_painted(&diagnosis.text(), colours::of_doctor),
        TopOutput::Json => match serde_json::to_string_pretty(&diagnosis) {
            Ok(text) => print(&(text + "\n")),
            Err(error) => return failed(&format!("encode the result: {error}")),
        },
    };
    match diagnosis.verdict {
        Verdict::Ok => printed,
        Verdict::Warning => ExitCode::from(DEGRADED_STATUS),
        Verdict::Failed => ExitCode::from(DOWN_STATUS),
    }
}

/// Prints what is wrong, unless the agent has run here before. Never fails: the service starts in any case.
fn first_start(diagnosis: &Diagnosis, flags: &[String]) -> ExitCode {
    let has_run = match settings(flags) {
        Ok((config, _)) => config.root_dir.join("coracle").exists(),
        Err(_) => false,
    };
    if !has_run {
        let _ = print(&diagnosis.complaints());
    }
    ExitCode::SUCCESS
}

/// Checks everything. `flags`: of the agent; if empty, those of the running agent or of its service.
pub(super) fn diagnose(local_socket: &Path, flags: &[String]) -> Diagnosis {
    let root = Path::new("/");
    let running = agent_settings::running(local_socket);
    let agent = running.as_ref().map(|(pid, _)| *pid);
    let flags = match (flags, running) {
        ([], Some((_, flags))) => flags,
        ([], None) => agent_settings::of_service(root).0,
        (flags, _) => flags.to_vec(),
    };
    let (config, mut findings) = match settings(&flags) {
        Ok((config, warnings)) => {
            let warn = |text| Finding::warning("configuration", text, "correct it, and systemctl restart coracle");
            (config, warnings.into_iter().map(warn).collect())
        }
        Err(error) => {
            let advice = "correct the file or flag; the agent does not start";
            (Box::default(), vec![Finding::failed("configuration", error, advice)])
        }
    };
    if !rustix::process::geteuid().is_root() {
        let advice = "sudo coracle doctor";
        findings.push(Finding::warning("user", "only root sees the runtime and all programs", advice));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("configuration", "valid"));
    }
    findings.extend(of_machine(root, &config, agent));
    Diagnosis::new(findings)
}

fn of_machine(root: &Path, config: &Config, agent: Option<u32>) -> Vec<Finding> {
    let runtime = runtime_reader::read(config);
    let response = runtime.response.as_ref().and_then(|decoded| decoded.as_ref().ok());
    let network = response.and_then(|response| Some((response.network_ready?, response.network_message.as_str())));
    let clock = machine_reader::clock(root, config);
    let mut findings = runtime::check(&runtime);
    findings.extend(lean::check(&runtime_reader::lean(root, config, response)));
    findings.push(runtime::cni(&machine_reader::cni(response), network));
    findings.extend(kernel::check(&kernel_reader::read(root), config.process.fail_swap_on, std::env::consts::ARCH));
    findings.push(node::clock(&clock));
    findings.extend(machine_reader::disks(config, &runtime.endpoint).iter().map(node::disk));
    findings.extend(board::check(machine_reader::board(root, config), &machine_reader::board_times()));
    let serial = board_identity::serial(root);
    findings.extend(node::identity(&KeptIdentity::read(&config.root_dir), serial.as_deref()));
    findings.extend(machine_reader::signature_policy(config).map(node::signature_policy));
    findings.push(node::watchdog(&machine_reader::watchdog(root, config)));
    findings.extend(machine_reader::ports(root, config, agent).iter().map(node::port));
    let certificates = machine_reader::certificates(config);
    findings.extend(certificates.iter().filter_map(|certificate| node::certificate(certificate, clock.now)));
    findings
}

/// The configuration that these flags of the agent result in, and its warnings. The error is one line.
pub(super) fn settings(flags: &[String]) -> Result<(Box<Config>, Vec<String>), String> {
    match config::load(&with_cluster_flags(flags)) {
        Ok(Request::Run(config, warnings)) => Ok((config, warnings.0)),
        Ok(Request::Help | Request::Version) => Err("expected flags of the agent".to_owned()),
        Err(error) => Err(ErrorChain(&error).to_string()),
    }
}
