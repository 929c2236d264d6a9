//! Streams between this machine and a container: `coracle exec`, `attach` and `port-forward`.
//!
//! The agent connects the client to the runtime's streaming server, which speaks SPDY: its streams can be half-closed,
//! so that a command sees the end of its input. The WebSocket protocol of these servers (v4) has no such thing. A
//! single poll loop reads only what it can pass on at once, so memory use is bounded and the slower side sets the pace.

mod outcome;
mod port_forward;
mod remote_command;
mod session;
mod terminal;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use super::command_table::{Attach, Exec, PortForward};
use super::failed;
use super::find_pod::{container_of, find_pod, is_running};
use crate::protocol::http1::push_escaped;
use crate::types::api::{Container, Pod, PodPhase};
use outcome::Outcome;
use port_forward::Listeners;
use remote_command::StreamOptions;
use session::Session;

/// `coracle exec`: returns the exit code of the command.
pub(super) fn exec(command: &Exec) -> ExitCode {
    let (pod, name) = match target(&command.local_socket, &command.pod, &command.namespace, &command.container) {
        Ok((pod, container)) => (pod, container.name),
        Err(line) => return failed(&line),
    };
    let (wants_input, tty) = (command.stdin, command.tty && has_terminal(command.stdin));
    let wanted = StreamOptions { stdin: wants_input, stderr: !tty, tty };
    let mut path = path("exec", &pod, &name, wanted);
    for word in &command.command {
        path.push_str("&command=");
        push_escaped(&mut path, word);
    }
    run(&command.local_socket, &path, wanted)
}

/// `coracle attach`: uses a terminal if the container has one.
pub(super) fn attach(command: &Attach) -> ExitCode {
    let (pod, container) = match target(&command.local_socket, &command.pod, &command.namespace, &command.container) {
        Ok(found) => found,
        Err(line) => return failed(&line),
    };
    if command.stdin && !container.stdin {
        return failed(&format!("container {} takes no input: its manifest has no stdin: true", container.name));
    }
    if command.tty && !container.tty {
        eprintln!("coracle: container {} has no terminal: its manifest has no tty: true", container.name);
    }
    let wanted = StreamOptions { stdin: command.stdin, stderr: !container.tty, tty: container.tty };
    if command.tty && container.tty && command.stdin && io::stdin().is_terminal() {
        eprintln!("coracle: attached, press a key to redraw the screen");
    }
    run(&command.local_socket, &path("attach", &pod, &container.name, wanted), wanted)
}

/// `coracle port-forward`: runs until a signal arrives.
pub(super) fn port_forward(command: &PortForward) -> ExitCode {
    let forwarded = (|| {
        let (pod, _) = find_pod(&command.local_socket, &command.pod, command.namespace.as_deref())?;
        let meta = &pod.metadata;
        if pod.status.phase != PodPhase::Running {
            return Err(format!("pod {} is not running, see coracle describe {0}", meta.name));
        }
        let ports: Result<Vec<_>, _> = command.ports.iter().map(|pair| pair.numbers(&pod)).collect();
        let signals = port_forward::signals().map_err(|error| format!("wait for signals: {error}"))?;
        let listeners = Listeners::open(&command.address.0, &ports?)?;
        let path = format!("/portForward/{}/{}", meta.namespace, meta.name);
        let open = || Session::open(&command.local_socket, &path, "portforward.k8s.io");
        port_forward::forward(open, &listeners, &signals).map_err(|error| error.to_string())
    })();
    forwarded.map_or_else(|line: String| failed(&line), |()| ExitCode::SUCCESS)
}

fn target(
    socket: &Path,
    name: &str,
    namespace: &Option<String>,
    container: &Option<String>,
) -> Result<(Pod, Container), String> {
    let (pod, _) = find_pod(socket, name, namespace.as_deref())?;
    let name = container_of(&pod, container.as_deref())?;
    is_running(&pod, name)?;
    let container_spec = pod.spec.all_containers().find(|container| container.name == name).cloned();
    let container_spec = container_spec.ok_or_else(|| format!("pod {} has no container {name}", pod.metadata.name))?;
    Ok((pod, container_spec))
}

/// Like kubectl, a terminal needs a terminal on stdin.
fn has_terminal(wants_input: bool) -> bool {
    let has = wants_input && io::stdin().is_terminal();
    if !has {
        eprintln!("coracle: no terminal here: -t needs -i and a terminal on stdin; continuing without one");
    }
    has
}

fn path(verb: &str, pod: &Pod, container: &str, wanted: StreamOptions) -> String {
    let meta = &pod.metadata;
    let mut path = format!("/{verb}/{}/{}/{container}?output=1", meta.namespace, meta.name);
    for (asks, is_wanted) in [("&input=1", wanted.stdin), ("&error=1", wanted.stderr), ("&tty=1", wanted.tty)] {
        path.push_str(if is_wanted { asks } else { "" });
    }
    path
}

fn run(socket: &Path, path: &str, wanted: StreamOptions) -> ExitCode {
    let ended = Session::open(socket, path, "v4.channel.k8s.io")
        .and_then(|session| remote_command::converse(session, wanted))
        .map_err(|error| error.to_string());
    match ended {
        Ok(Outcome::Exited(code)) => ExitCode::from(code),
        Ok(Outcome::Failed(line)) | Err(line) => failed(&line),
    }
}
