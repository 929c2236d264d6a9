//! Parses a command line. Pure.

use argh::FromArgs;

use super::command_table::{COMMANDS, Command, ListImages};
use super::help;
use super::outputs::ImagesOutput;
use crate::platform::config::nearest;

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
        Ok(Coracle { command: Command::ListImages(images) }) if !is_about_images(&images) => {
            Err(format!("images: {IMAGES_USAGE}"))
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

const IMAGES_USAGE: &str = "expected nothing, or: import FILE..., or: remove IMAGE..., or: delta OLD NEW -o FILE";

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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cli::command_table::Pods;
    use crate::cli::outputs::PodsOutput;

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
        let images = format!("images: {IMAGES_USAGE}");
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
        for command in COMMANDS.iter().copied().filter(|command| *command != "help") {
            let Ok(ParsedCommand::Help(text)) = parsed(&[command, "--help"]) else { panic!("{command}") };
            assert!(text.starts_with(&format!("Usage: coracle {command}")), "{text}");
            let has_example = |line: &str| line.starts_with("Example") || line.starts_with("  coracle ");
            assert!(text.lines().any(has_example), "{command} has no example");
            assert_eq!(parsed(&["help", command]), Ok(ParsedCommand::Help(text)));
        }
    }
}
