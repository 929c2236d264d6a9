//! The commands and their arguments. Pure.

use std::path::PathBuf;
use std::time::Duration;

use argh::FromArgs;

pub(super) use super::age::Age;
use super::devices::ListDevices;
use super::help;
use super::layout::{KUBERNETES_DIR, ROOT_DIR};
pub(super) use super::outputs::{ImagesOutput, PodsOutput, Shell, StatusOutput, TopOutput, VersionOutput};
use super::ports::{Addresses, PortPair};
use super::validate::Validate;
use crate::kubelet::certificates::discovery::Pin;
use crate::platform::config::{LOCAL_SOCKET, nearest};

/// A parsed command line.
#[derive(Debug, PartialEq)]
pub(super) enum ParsedCommand {
    /// The flags of the agent, which have their own parser.
    Agent,
    Help(String),
    Command(Command),
}

#[derive(Debug, PartialEq, FromArgs)]
/// Coracle, a kubelet for small boards.
struct Coracle {
    #[argh(subcommand)]
    command: Command,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand)]
pub(super) enum Command {
    Apply(Apply),
    Delete(Delete),
    Attach(Attach),
    Completion(Completion),
    Describe(Describe),
    Events(Events),
    Exec(Exec),
    Devices(ListDevices),
    Images(ListImages),
    Join(Join),
    Leave(Leave),
    Logs(Logs),
    Pods(Pods),
    Restart(Restart),
    Rollback(Rollback),
    Hold(Hold),
    Confirm(Confirm),
    PortForward(PortForward),
    Status(Status),
    Sync(Sync),
    Top(Top),
    Validate(Validate),
    Version(Version),
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "apply")]
/// Run the pods of a manifest on this node and keep them.
pub(super) struct Apply {
    /// manifest, or - for standard input; may be given again
    #[argh(option, short = 'f')]
    pub(super) filename: Vec<PathBuf>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "delete")]
/// Stop and remove a pod that was applied.
pub(super) struct Delete {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// wait until the pod is gone
    #[argh(switch)]
    pub(super) wait: bool,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "restart")]
/// Restart the containers of a pod in place.
pub(super) struct Restart {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// restart only this container
    #[argh(option, short = 'c')]
    pub(super) container: Option<String>,
    /// wait until the containers run again
    #[argh(switch)]
    pub(super) wait: bool,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "rollback")]
/// Run an earlier version of a pod.
pub(super) struct Rollback {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// number of versions to go back (default 1)
    #[argh(option, default = "1")]
    pub(super) to: u32,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "hold")]
/// Keep the running version of a pod even if its manifest changes.
pub(super) struct Hold {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "confirm")]
/// Run the manifest of a pod and accept it.
pub(super) struct Confirm {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "sync")]
/// Exchange everything with the cluster now.
pub(super) struct Sync {
    /// wait until everything is exchanged
    #[argh(switch)]
    pub(super) wait: bool,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "attach")]
/// Show the output of a container from now on, and pass input to it.
pub(super) struct Attach {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// container (default: the first of the pod)
    #[argh(option, short = 'c')]
    pub(super) container: Option<String>,
    /// pass standard input to the container
    #[argh(switch, short = 'i')]
    pub(super) stdin: bool,
    /// show the terminal of the container
    #[argh(switch, short = 't')]
    pub(super) tty: bool,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "completion")]
/// Print a completion script for a shell.
pub(super) struct Completion {
    /// bash, zsh or fish
    #[argh(positional)]
    pub(super) shell: Shell,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "describe")]
/// Show everything about one pod.
pub(super) struct Describe {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "logs")]
/// Print the log of a container.
pub(super) struct Logs {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// container (default: the first of the pod)
    #[argh(option, short = 'c')]
    pub(super) container: Option<String>,
    /// print new lines until the container ends
    #[argh(switch, short = 'f')]
    pub(super) follow: bool,
    /// print the log of the previous instance
    #[argh(switch, short = 'p')]
    pub(super) previous: bool,
    /// print only the last lines
    #[argh(option)]
    pub(super) tail: Option<i64>,
    /// print only lines younger than this, as 90s or 2h
    #[argh(option)]
    pub(super) since: Option<Age>,
    /// print the time of each line
    #[argh(switch)]
    pub(super) timestamps: bool,
    /// print at most this many bytes
    #[argh(option)]
    pub(super) limit_bytes: Option<u64>,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "exec")]
/// Run a command in a container.
pub(super) struct Exec {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// command, after --
    #[argh(positional, greedy)]
    pub(super) command: Vec<String>,
    /// container (default: the first of the pod)
    #[argh(option, short = 'c')]
    pub(super) container: Option<String>,
    /// pass standard input to the container
    #[argh(switch, short = 'i')]
    pub(super) stdin: bool,
    /// run the command on a terminal
    #[argh(switch, short = 't')]
    pub(super) tty: bool,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "events")]
/// List recent events of this node or of one pod.
pub(super) struct Events {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: Option<String>,
    /// text (the default), json or yaml
    #[argh(option, short = 'o', default = "StatusOutput::Text")]
    pub(super) output: StatusOutput,
    /// list only events of this namespace
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "images")]
/// List, import or remove images, or make a delta of two archives.
pub(super) struct ListImages {
    /// none, or: import FILE..., remove IMAGE..., delta OLD NEW
    #[argh(positional)]
    pub(super) words: Vec<String>,
    /// table (the default), wide or json; the file of a delta
    #[argh(option, short = 'o', default = "ImagesOutput::Table")]
    pub(super) output: ImagesOutput,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "join")]
/// Make this machine a node of a cluster.
pub(super) struct Join {
    /// API server, as host:port
    #[argh(positional)]
    pub(super) server: String,
    /// bootstrap token of kubeadm token create
    #[argh(option)]
    pub(super) token: String,
    /// digest of the public key of the cluster's CA, sha256:...; may be given again
    #[argh(option)]
    pub(super) discovery_token_ca_cert_hash: Vec<Pin>,
    /// trust every server that knows the token
    #[argh(switch)]
    pub(super) discovery_token_unsafe_skip_ca_verification: bool,
    /// name of the node (default: the host name)
    #[argh(option)]
    pub(super) node_name: Option<String>,
    /// write all files and do not start the service
    #[argh(switch)]
    pub(super) no_start: bool,
    /// how long to retry while the server cannot be reached (default 1m)
    #[argh(option, default = "Age(Duration::from_secs(60))")]
    pub(super) timeout: Age,
    /// directory of kubeconfigs (default /etc/kubernetes)
    #[argh(option, default = "PathBuf::from(KUBERNETES_DIR)")]
    pub(super) kubernetes_dir: PathBuf,
    /// directory of the agent's state (default /var/lib/kubelet)
    #[argh(option, default = "PathBuf::from(ROOT_DIR)")]
    pub(super) root_dir: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "leave")]
/// Remove this machine from its cluster.
pub(super) struct Leave {
    /// also delete the Node object
    #[argh(switch)]
    pub(super) delete_node: bool,
    /// directory of kubeconfigs (default /etc/kubernetes)
    #[argh(option, default = "PathBuf::from(KUBERNETES_DIR)")]
    pub(super) kubernetes_dir: PathBuf,
    /// directory of the agent's state (default /var/lib/kubelet)
    #[argh(option, default = "PathBuf::from(ROOT_DIR)")]
    pub(super) root_dir: PathBuf,
    /// do not restart the agent
    #[argh(switch)]
    pub(super) no_restart: bool,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "pods")]
/// List the pods of this node.
pub(super) struct Pods {
    /// table (the default), wide, json or yaml
    #[argh(option, short = 'o', default = "PodsOutput::Table")]
    pub(super) output: PodsOutput,
    /// only pods of this namespace
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "port-forward")]
/// Forward ports of this machine to a pod.
pub(super) struct PortForward {
    /// name of the pod, or the name in its manifest
    #[argh(positional)]
    pub(super) pod: String,
    /// ports, as 8080:80
    #[argh(positional)]
    pub(super) ports: Vec<PortPair>,
    /// addresses to listen on (default 127.0.0.1)
    #[argh(option, default = "Addresses::local()")]
    pub(super) address: Addresses,
    /// namespace of the pod
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "status")]
/// Show the node, its runtime, its pod sources and its last errors.
pub(super) struct Status {
    /// text (the default), json or yaml
    #[argh(option, short = 'o', default = "StatusOutput::Text")]
    pub(super) output: StatusOutput,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "top")]
/// Show CPU and memory usage of the node and its pods.
pub(super) struct Top {
    /// table (the default) or json
    #[argh(option, short = 'o', default = "TopOutput::Table")]
    pub(super) output: TopOutput,
    /// repeat every three seconds
    #[argh(switch, short = 'w')]
    pub(super) watch: bool,
    /// only pods of this namespace
    #[argh(option, short = 'n')]
    pub(super) namespace: Option<String>,
    /// socket of the agent (default /run/coracle/coracle.sock)
    #[argh(option, default = "PathBuf::from(LOCAL_SOCKET)")]
    pub(super) local_socket: PathBuf,
}

#[derive(Debug, PartialEq, FromArgs)]
#[argh(subcommand, name = "version")]
/// Show the version.
pub(super) struct Version {
    /// json
    #[argh(option, short = 'o', default = "VersionOutput::Text")]
    pub(super) output: VersionOutput,
}

/// Reads a command line; an error is one line.
pub(super) fn parse(arguments: &[String]) -> Result<ParsedCommand, String> {
    let Some(first) = arguments.first().map(String::as_str) else { return Ok(ParsedCommand::Agent) };
    match first {
        "help" => Ok(ParsedCommand::Help(help::of_command(arguments.get(1).map_or("", String::as_str)))),
        _ if COMMANDS.contains(&first) => command(arguments),
        _ if first.starts_with('-') => Ok(ParsedCommand::Agent),
        _ => {
            let near = nearest(first, COMMANDS.iter().copied());
            let hint = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
            Err(format!("{first}: unknown command{hint}; coracle --help lists all commands"))
        }
    }
}

fn command(arguments: &[String]) -> Result<ParsedCommand, String> {
    // Arguments after -- belong to the command in the container.
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (own, others) = arguments.split_at_checked(end).unwrap_or((arguments, &[]));
    let mut parts: Vec<&str> = own.iter().flat_map(|argument| split(argument)).collect();
    if parts.iter().any(|part| matches!(*part, "--help" | "-h")) {
        return Ok(ParsedCommand::Help(help::of_command(arguments.first().map_or("", String::as_str))));
    }
    parts.extend(others.iter().map(String::as_str));
    match Coracle::from_args(&["coracle"], &parts) {
        Ok(Coracle { command: Command::Exec(exec) }) if exec.command.is_empty() || others.is_empty() => {
            Err("exec: expected a command after --, as in: coracle exec web -- ls /".to_owned())
        }
        Ok(Coracle { command: Command::Images(images) }) if !is_about_images(&images) => {
            Err(format!("images: {IMAGES}"))
        }
        Ok(Coracle { command: Command::PortForward(forward) }) if forward.ports.is_empty() => {
            Err("port-forward: expected [LOCAL:]REMOTE, as in: coracle port-forward web 8080:80".to_owned())
        }
        Ok(Coracle { command: Command::Validate(validate) }) if validate.files.is_empty() => {
            Err("validate: expected a FILE, found nothing".to_owned())
        }
        Ok(Coracle { command: Command::Apply(apply) }) if apply.filename.is_empty() => {
            Err("apply: expected -f FILE, found nothing; -f - reads standard input".to_owned())
        }
        Ok(coracle) => Ok(ParsedCommand::Command(coracle.command)),
        Err(exit) => {
            // The first paragraph is the error; the next one refers to --help.
            let what = exit.output.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = what.split_whitespace().collect();
            Err(format!("{}: {}", arguments.first().map_or("", String::as_str), words.join(" ")))
        }
    }
}

const IMAGES: &str = "expected nothing, or: import FILE..., or: remove IMAGE..., or: delta OLD NEW -o FILE";

fn is_about_images(images: &ListImages) -> bool {
    match (images.words.first().map(String::as_str), matches!(images.output, ImagesOutput::File(_))) {
        (None, has_file) => !has_file,
        (Some("import" | "remove"), false) => images.words.len() > 1,
        (Some("delta"), true) => images.words.len() == 3,
        (Some(_), _) => false,
    }
}

/// Splits `--name=value`, `-nvalue` and `-it` into two arguments, which argh requires.
fn split(argument: &str) -> impl Iterator<Item = &str> {
    let (name, value) = if matches!(argument, "-it" | "-ti") {
        ("-i", Some("-t"))
    } else if argument.starts_with("--") {
        argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)))
    } else if argument.starts_with('-') {
        let (name, value) = argument.split_at_checked(2).unwrap_or((argument, ""));
        (name, Some(value.strip_prefix('=').unwrap_or(value)).filter(|value| !value.is_empty()))
    } else {
        (argument, None)
    };
    std::iter::once(name).chain(value)
}

pub(super) const COMMANDS: [&str; 24] = [
    "apply",
    "attach",
    "completion",
    "confirm",
    "delete",
    "describe",
    "devices",
    "events",
    "exec",
    "help",
    "hold",
    "images",
    "join",
    "leave",
    "logs",
    "pods",
    "port-forward",
    "restart",
    "rollback",
    "status",
    "sync",
    "top",
    "validate",
    "version",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Result<ParsedCommand, String> {
        parse(&line.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_without_a_command_are_the_agents() {
        assert_eq!(parsed(&[]), Ok(ParsedCommand::Agent));
        assert_eq!(parsed(&["--max-pods", "3"]), Ok(ParsedCommand::Agent));
        assert_eq!(parsed(&["--help"]), Ok(ParsedCommand::Agent));
    }

    #[test]
    fn options_are_accepted_in_kubectls_forms() {
        let wide = Pods {
            output: PodsOutput::Wide,
            namespace: Some("x".to_owned()),
            local_socket: PathBuf::from("/run/coracle/coracle.sock"),
        };
        for line in [
            &["pods", "-o", "wide", "-n", "x"][..],
            &["pods", "-owide", "-nx"],
            &["pods", "-o=wide", "-n=x"],
            &["pods", "--output=wide", "--namespace", "x"],
        ] {
            let Ok(ParsedCommand::Command(Command::Pods(pods))) = parsed(line) else { panic!("{line:?}") };
            assert_eq!(pods, wide);
        }
    }

    #[test]
    fn apply_accepts_several_files_and_standard_input() {
        for line in [&["apply", "-f", "a.yaml", "-f", "-"][..], &["apply", "-fa.yaml", "--filename=-"]] {
            let Ok(ParsedCommand::Command(Command::Apply(apply))) = parsed(line) else { panic!("{line:?}") };
            assert_eq!(apply.filename, [PathBuf::from("a.yaml"), PathBuf::from("-")]);
        }
    }

    #[test]
    fn arguments_after_two_hyphens_are_the_containers_command() {
        let parsed_exec = |line: &[&str]| match parsed(line) {
            Ok(ParsedCommand::Command(Command::Exec(exec))) => exec,
            other => panic!("{other:?}"),
        };
        let exec = parsed_exec(&["exec", "-it", "web", "-cmain", "--", "sh", "-c", "a=b", "--", "--help", "-nx"]);
        assert_eq!((&*exec.pod, exec.container.as_deref(), exec.stdin, exec.tty), ("web", Some("main"), true, true));
        assert_eq!(exec.command, ["sh", "-c", "a=b", "--", "--help", "-nx"]);
        assert_eq!(exec.namespace, None);
        let exec = parsed_exec(&["exec", "web", "-i", "--", "-x"]);
        assert_eq!((exec.stdin, exec.tty, exec.command), (true, false, vec!["-x".to_owned()]));
    }

    #[test]
    fn invalid_command_line_has_a_one_line_error() {
        let images = format!("images: {IMAGES}");
        for (line, message) in [
            (&["pod"][..], "pod: unknown command (did you mean pods?); coracle --help lists all commands"),
            (&["frobnicate"], "frobnicate: unknown command; coracle --help lists all commands"),
            (&["pods", "-o", "xml"], "pods: Error parsing option '-o' with value 'xml': expected wide, json or yaml"),
            (&["pods", "-o"], "pods: No value provided for option '-o'."),
            (&["pods", "--frob"], "pods: Unrecognized argument: --frob"),
            (&["pods", "x"], "pods: Unrecognized argument: x"),
            (
                &["logs", "web", "--since", "soon"],
                "logs: Error parsing option '--since' with value 'soon': expected a duration as 90s or 2h",
            ),
            (&["validate"], "validate: expected a FILE, found nothing"),
            (&["apply"], "apply: expected -f FILE, found nothing; -f - reads standard input"),
            (&["images", "remove"], &*images),
            (&["images", "import"], &*images),
            (&["images", "-o", "xml"], &*images),
            (&["images", "delta", "a.tar", "b.tar"], &*images),
            (&["images", "delta", "a.tar", "b.tar", "-o", "json"], &*images),
            (&["images", "delta", "a.tar", "-o", "x.delta"], &*images),
            (&["exec", "web", "ls"], "exec: expected a command after --, as in: coracle exec web -- ls /"),
            (
                &["port-forward", "web"],
                "port-forward: expected [LOCAL:]REMOTE, as in: coracle port-forward web 8080:80",
            ),
            (&["exec", "web", "--"], "exec: expected a command after --, as in: coracle exec web -- ls /"),
        ] {
            assert_eq!(parsed(line), Err(message.to_owned()));
        }
    }

    #[test]
    fn each_command_has_its_help() {
        for command in COMMANDS.into_iter().filter(|command| *command != "help") {
            let Ok(ParsedCommand::Help(text)) = parsed(&[command, "--help"]) else { panic!("{command}") };
            assert!(text.starts_with(&format!("Usage: coracle {command}")), "{text}");
            let has_example = |line: &str| line.starts_with("Example") || line.starts_with("  coracle ");
            assert!(text.lines().any(has_example), "{command} has no example");
            assert_eq!(parsed(&["help", command]), Ok(ParsedCommand::Help(text)));
        }
    }
}
