//! Parses a command line. Pure.

use argh::FromArgs;

use super::aliases::translated;
use super::command_parser::CommandForm;
use super::command_table::{COMMANDS, Command, ListImages};
use super::help;
use super::outputs::ImagesOutput;
use crate::platform::config::nearest;

/// A parsed command line.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
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

/// Reads a command line, also in the words of other tools; an error is one line.
pub(super) fn parse(arguments: &[String]) -> Result<ParsedCommand, String> {
    let (socket, rest) = leading_socket(arguments);
    let mut line = translated(rest)?;
    match line.first() {
        Some(command) if !command.starts_with('-') => drop(line.splice(1..1, socket.iter().cloned())),
        // The flag is the agent's.
        _ => line = arguments.to_vec(),
    }
    parse_own(&line)
}

/// Splits off `--local-socket`, which may stand before a command.
fn leading_socket(arguments: &[String]) -> (&[String], &[String]) {
    let length = match arguments {
        [flag, _, ..] if flag == "--local-socket" => 2,
        [flag, ..] if flag.starts_with("--local-socket=") => 1,
        _ => 0,
    };
    arguments.split_at_checked(length).unwrap_or((&[], arguments))
}

fn parse_own(arguments: &[String]) -> Result<ParsedCommand, String> {
    let Some(first) = arguments.first().map(String::as_str) else { return Ok(ParsedCommand::Agent) };
    let form = COMMANDS.iter().find(|form| form.name == first);
    match (first, form) {
        ("help", _) => Ok(ParsedCommand::Help(help::of_command(arguments.get(1).map_or("", String::as_str)))),
        (_, Some(form)) => command(form, arguments),
        _ if first.starts_with('-') => Ok(ParsedCommand::Agent),
        _ => {
            let near = nearest(first, COMMANDS.iter().map(|form| form.name));
            let hint = near.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default();
            Err(format!("{first}: unknown command{hint}; coracle --help lists all commands"))
        }
    }
}

fn command(form: &CommandForm, arguments: &[String]) -> Result<ParsedCommand, String> {
    // Arguments after -- belong to the command in the container.
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (own_arguments, others) = arguments.split_at_checked(end).unwrap_or((arguments, &[]));
    let mut parts: Vec<String> = Vec::new();
    for argument in own_arguments {
        // A lone hyphen is standard input, which argh only accepts as a value.
        let is_value = parts.last().is_some_and(|before| matches!(before.as_str(), "-f" | "--filename"));
        if argument == "-" && !is_value && form.takes_manifests {
            parts.push("-f".to_owned());
        }
        parts.extend(split(argument, form.switches));
    }
    if parts.iter().any(|part| matches!(part.as_str(), "--help" | "-h")) {
        return Ok(ParsedCommand::Help(help::of_command(form.name)));
    }
    parts.extend(others.iter().cloned());
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
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
        Ok(Coracle { command }) => match missing_argument(&command) {
            Some(line) => Err(line.to_owned()),
            None => Ok(ParsedCommand::Command(command)),
        },
        Err(exit) => {
            // The first paragraph is the error; the next one refers to --help.
            let what = exit.output.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = what.split_whitespace().collect();
            Err(format!("{}: {}", form.name, words.join(" ")))
        }
    }
}

/// What a command lacks that has several ways to name its subjects.
fn missing_argument(command: &Command) -> Option<&'static str> {
    match command {
        Command::Apply(apply) if apply.filename.is_empty() && apply.files.is_empty() => {
            Some("apply: expected -f FILE, found nothing; -f - reads standard input")
        }
        Command::Delete(delete) if delete.pods.is_empty() && delete.filename.is_empty() => {
            Some("delete: expected a POD or -f FILE, found nothing; coracle pods lists all pods")
        }
        Command::Diff(diff) if diff.filename.is_empty() && diff.files.is_empty() => {
            Some("diff: expected -f FILE, found nothing; -f - reads standard input")
        }
        Command::Logs(logs) if logs.pods.is_empty() && logs.selector.is_none() => {
            Some("logs: expected a POD or -l LABELS, found nothing; coracle pods lists all pods")
        }
        Command::Validate(validate) if validate.files.is_empty() && validate.filename.is_empty() => {
            Some("validate: expected a FILE, found nothing")
        }
        Command::Wait(wait) if wait.pods.is_empty() => {
            Some("wait: expected a POD, found nothing; coracle pods lists all pods")
        }
        _ => None,
    }
}

const IMAGES_USAGE: &str = "expected nothing, or: import FILE..., or: pull IMAGE..., or: remove IMAGE..., or: prune, or: delta OLD NEW -o FILE";

fn is_about_images(images: &ListImages) -> bool {
    match (images.words.first().map(String::as_str), matches!(images.output, ImagesOutput::File(_))) {
        (None, has_file) => !has_file,
        (Some("import" | "pull" | "remove"), false) => images.words.len() > 1,
        (Some("prune"), false) => images.words.len() == 1,
        (Some("delta"), true) => images.words.len() == 3,
        (Some(_), _) => false,
    }
}

/// Splits `--name=value`, `-nvalue`, `-it` and `-fcmain`, which argh requires.
fn split(argument: &str, switches: &str) -> Vec<String> {
    match argument {
        // kubectl's words.
        "--dry-run=client" | "--dry-run=server" => return vec!["--dry-run".to_owned()],
        "--for" => return vec!["--until".to_owned()],
        _ => {}
    }
    if argument.starts_with("--") {
        let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
        let name = if name == "--for" { "--until" } else { name };
        return [Some(name), value].into_iter().flatten().map(str::to_owned).collect();
    }
    let Some(mut letters) = argument.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
        return vec![argument.to_owned()];
    };
    let mut parts = Vec::new();
    while let Some(letter) = letters.chars().next() {
        parts.push(format!("-{letter}"));
        letters = letters.strip_prefix(letter).unwrap_or_default();
        if !switches.contains(letter) {
            let value = letters.strip_prefix('=').unwrap_or(letters);
            parts.extend((!value.is_empty()).then(|| value.to_owned()));
            break;
        }
    }
    parts
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
            pods: Vec::new(),
            all_namespaces: false,
            output: PodsOutput::Wide,
            selector: None,
            watch: false,
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

    fn form(name: &str) -> &'static CommandForm {
        COMMANDS.iter().find(|form| form.name == name).unwrap()
    }

    #[test]
    fn switches_and_manifests_of_a_command_come_from_its_flags() {
        let switches = ["attach", "exec", "events", "pods", "logs", "top", "status"].map(|name| form(name).switches);
        assert_eq!(switches, ["it", "it", "Aw", "Aw", "fpt", "w", ""]);
        let manifests: Vec<&str> = COMMANDS.iter().filter(|form| form.takes_manifests).map(|form| form.name).collect();
        assert_eq!(manifests, ["apply", "diff", "delete", "validate"]);
    }

    #[test]
    fn letters_of_switches_may_stand_together() {
        for line in [
            &["logs", "-fpt", "web", "-cmain"][..],
            &["logs", "-f", "-p", "-t", "web", "-c", "main"],
            &["logs", "web", "-tfpcmain"],
            &["logs", "web", "-tfpc", "main"],
        ] {
            let Ok(ParsedCommand::Command(Command::Logs(logs))) = parsed(line) else { panic!("{line:?}") };
            assert_eq!((logs.follow, logs.previous, logs.timestamps), (true, true, true), "{line:?}");
            assert_eq!((logs.pods, logs.container.as_deref()), (vec!["web".to_owned()], Some("main")));
        }
        for (command, pod) in [("attach", true), ("exec", true), ("events", false), ("pods", false), ("top", false)] {
            for letter in form(command).switches.chars() {
                let flag = format!("-{letter}");
                let mut line = vec![command, flag.as_str()];
                line.extend(pod.then_some("web"));
                line.extend(if command == "exec" { &["--", "sh"][..] } else { &[] });
                assert!(matches!(parsed(&line), Ok(ParsedCommand::Command(_))), "{line:?}: {:?}", parsed(&line));
            }
        }
    }

    #[test]
    fn socket_may_stand_before_the_command() {
        for line in [
            &["--local-socket", "/x.sock", "pods"][..],
            &["--local-socket=/x.sock", "get", "pods"],
            &["ps", "--local-socket", "/x.sock"],
        ] {
            let Ok(ParsedCommand::Command(Command::Pods(pods))) = parsed(line) else { panic!("{line:?}") };
            assert_eq!(pods.local_socket, PathBuf::from("/x.sock"));
        }
        // The agent has the flag too.
        assert_eq!(parsed(&["--local-socket", "/x.sock", "--max-pods", "3"]), Ok(ParsedCommand::Agent));
        assert_eq!(parsed(&["--local-socket", "/x.sock"]), Ok(ParsedCommand::Agent));
    }

    #[test]
    fn kubectls_flags_of_wait_and_apply_are_accepted() {
        let Ok(ParsedCommand::Command(Command::Wait(wait))) = parsed(&["wait", "--for=condition=Ready", "pod/web"])
        else {
            panic!("wait --for")
        };
        assert_eq!((wait.until, wait.pods), (crate::cli::wait::WaitedState::Ready, vec!["pod/web".to_owned()]));
        for line in [&["apply", "--dry-run=client", "-f", "a.yaml"][..], &["apply", "--dry-run", "a.yaml"]] {
            let Ok(ParsedCommand::Command(Command::Apply(apply))) = parsed(line) else { panic!("{line:?}") };
            assert!(apply.dry_run && apply.filename.len() + apply.files.len() == 1);
        }
    }

    #[test]
    fn lone_hyphen_is_standard_input() {
        for line in [&["validate", "-"][..], &["validate", "-f", "-"], &["validate", "-f-"]] {
            let Ok(ParsedCommand::Command(Command::Validate(validate))) = parsed(line) else { panic!("{line:?}") };
            assert_eq!((validate.filename, validate.files), (vec![PathBuf::from("-")], Vec::new()));
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
            (&["podz"][..], "podz: unknown command (did you mean pods?); coracle --help lists all commands"),
            (&["kill", "web"], "kill: coracle restart POD restarts its containers, coracle delete POD ends it"),
            (&["frobnicate"], "frobnicate: unknown command; coracle --help lists all commands"),
            (
                &["pods", "-o", "xml"],
                "pods: Error parsing option '-o' with value 'xml': expected wide, json, yaml, name or jsonpath=PATH",
            ),
            (&["pods", "-o"], "pods: No value provided for option '-o'."),
            (&["pods", "--frob"], "pods: Unrecognized argument: --frob"),
            (&["status", "x"], "status: Unrecognized argument: x"),
            (&["logs", "-f"], "logs: expected a POD or -l LABELS, found nothing; coracle pods lists all pods"),
            (&["delete"], "delete: expected a POD or -f FILE, found nothing; coracle pods lists all pods"),
            (&["wait"], "wait: expected a POD, found nothing; coracle pods lists all pods"),
            (&["diff"], "diff: expected -f FILE, found nothing; -f - reads standard input"),
            (
                &["logs", "web", "--since", "soon"],
                "logs: Error parsing option '--since' with value 'soon': expected a duration as 90s or 2h",
            ),
            (&["validate"], "validate: expected a FILE, found nothing"),
            (&["apply"], "apply: expected -f FILE, found nothing; -f - reads standard input"),
            (&["images", "remove"], &*images),
            (&["images", "import"], &*images),
            (&["images", "pull"], &*images),
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
        for command in COMMANDS.iter().map(|form| form.name).filter(|command| *command != "help") {
            let Ok(ParsedCommand::Help(text)) = parsed(&[command, "--help"]) else { panic!("{command}") };
            assert!(text.starts_with(&format!("Usage: coracle {command}")), "{text}");
            let has_example = |line: &str| line.starts_with("Example") || line.starts_with("  coracle ");
            assert!(text.lines().any(has_example), "{command} has no example");
            assert_eq!(parsed(&["help", command]), Ok(ParsedCommand::Help(text)));
        }
    }
}
