//! Completions for bash, zsh and fish. Pure.

use crate::command_table::COMMANDS;
use crate::flag_table::AGENT_FLAGS;
use crate::texts::{Argument, CommandEntry, Completes, Flag, Value};

pub(crate) fn bash() -> String {
    let of_agent = agent_flags().map(|flag| ("", flag));
    let of_commands = COMMANDS.iter().flat_map(|command| command.flags.iter().map(|flag| (command.name, flag)));
    let values = of_agent.chain(of_commands).filter_map(|(command, flag)| {
        let patterns = names(flag).map(|name| format!("\"{command} {name}\""));
        Some((bash_value(command, flag)?, patterns.collect::<Vec<_>>().join(" | ")))
    });
    let values: String = grouped(values)
        .into_iter()
        .map(|(action, patterns)| {
            format!("        {})\n            {action} ;;\n", patterns.join(" | \\\n            "))
        })
        .collect();
    let pods: Vec<&str> = COMMANDS.iter().filter(|command| takes_a_pod(command)).map(|command| command.name).collect();
    let words: String = COMMANDS.iter().map(bash_words).collect();
    let agent: Vec<String> = agent_flags().flat_map(names).collect();
    format!(
        r#"{NOTICE}
_coracle() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command='' words=''
    # Where = ends a word, a value stands two words after its flag.
    [[ $current != = ]] || current=''
    [[ $previous != = ]] || previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    ((COMP_CWORD == 1)) || command=${{COMP_WORDS[1]}}
    [[ $command != -* ]] || command=''
    COMPREPLY=()

    case "$command $previous" in
{values}    esac

    if [[ -z $words && $current != -* && $COMP_CWORD -eq 2 ]]; then
        # The pods of this node, if its agent answers.
        case $command in
            {pods})
                words=$(coracle pods 2>/dev/null | while read -r namespace name _; do
                    [[ $namespace == NAMESPACE || $namespace == No ]] || echo "$name"; done)
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); return ;;
        esac
    fi
    if [[ -z $words ]]; then
        case $command in
{words}            *)
                words='{agent}'
                [[ $COMP_CWORD -gt 1 || $current == -* ]] || words='{commands}'
                ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}

complete -o filenames -F _coracle coracle
"#,
        pods = pods.join(" | "),
        agent = agent.join(" "),
        commands = command_names().join(" "),
    )
}

/// The bash code that completes the value of a flag.
fn bash_value(command: &str, flag: &Flag) -> Option<String> {
    Some(match flag.value {
        // A switch takes a value only after `=`, and only the agent's switches accept one.
        Value::Switch if !command.is_empty() || matches!(flag.name, "help" | "version") => return None,
        Value::Switch | Value::Bool => "[[ $current == -* ]] || words='true false'".to_owned(),
        Value::OneOf(words) => format!("words='{}'", words.join(" ")),
        Value::File(_) => r#"mapfile -t COMPREPLY < <(compgen -f -- "$current"); return"#.to_owned(),
        Value::Directory => r#"mapfile -t COMPREPLY < <(compgen -d -- "$current"); return"#.to_owned(),
        Value::Text(_) => "return".to_owned(),
    })
}

fn bash_words(command: &CommandEntry) -> String {
    let flags: Vec<String> = command.flags.iter().flat_map(names).chain(HELP.map(str::to_owned)).collect();
    let files = r#"{ mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }"#;
    let mut lines = format!("            {})\n                words='{}'\n", command.name, flags.join(" "));
    for (at, argument) in command.arguments.iter().enumerate() {
        lines += &match argument.completes {
            Completes::Nothing | Completes::Pods => continue,
            Completes::Words(_) => {
                let words = words_of(argument).join(" ");
                format!("                [[ $COMP_CWORD -ne {} || $current == -* ]] || words='{words}'\n", at + 2)
            }
            Completes::Files => format!("                [[ $current == -* ]] || {files}\n"),
            Completes::FilesAfter(words) => {
                format!(
                    "                [[ ${{COMP_WORDS[{}]}} != @({}) || $COMP_CWORD -lt {} || $current == -* ]] || {files}\n",
                    at + 1,
                    words.join("|"),
                    at + 2
                )
            }
        };
    }
    lines + "                ;;\n"
}

pub(crate) fn zsh() -> String {
    let cases: String = COMMANDS.iter().map(zsh_case).collect();
    let commands: String =
        COMMANDS.iter().map(|command| format!("        '{}:{}'\n", command.name, command.summary)).collect();
    let flags: String = agent_flags().map(|flag| format!("        {}\n", zsh_flag(flag))).collect();
    format!(
        r#"#compdef coracle
{NOTICE}
# The pods of this node, if its agent answers.
_coracle_pods() {{
    local -a pods
    pods=(${{${{(f)"$(coracle pods 2>/dev/null)"}}[2,-1]}})
    pods=(${{${{pods#* ##}}%% *}})
    compadd $pods
}}

_coracle() {{
    if (( CURRENT > 2 )); then
        case $words[2] in
{cases}        esac
    fi
    local -a commands flags
    commands=(
{commands}    )
    flags=(
{flags}    )
    if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then
        _describe command commands
    else
        _arguments $flags
    fi
}}

# Found by its name it is the completion itself; read with `source` it declares its function.
if [[ $funcstack[1] == _coracle ]]; then _coracle "$@"; else compdef _coracle coracle; fi
"#
    )
}

fn zsh_case(command: &CommandEntry) -> String {
    let mut specs: Vec<String> = Vec::new();
    for (at, argument) in command.arguments.iter().enumerate() {
        let (place, label) = (at + 2, argument.label);
        specs.push(match argument.completes {
            Completes::Pods => format!("'{place}::{label}:_coracle_pods'"),
            Completes::Words(_) => format!("'{place}::{label}:({})'", words_of(argument).join(" ")),
            Completes::Files | Completes::FilesAfter(_) => format!("'*:{label}:_files'"),
            Completes::Nothing if at == 0 => format!("'{place}:{label}:'"),
            Completes::Nothing => format!("'*:{label}:'"),
        });
    }
    if command.arguments.is_empty() {
        specs.push("'2:: :'".to_owned());
    }
    specs.extend(command.flags.iter().map(zsh_flag));
    specs.push("'(-h --help)'{-h,--help}'[print help]'".to_owned());
    format!(
        "            {})\n                _arguments {}\n                return ;;\n",
        command.name,
        specs.join(" \\\n                    ")
    )
}

/// For example `'(-o --output)'{-o,--output}'[...]:output:(wide json)'`.
fn zsh_flag(flag: &Flag) -> String {
    let long = flag.long();
    let equals = if matches!(flag.value, Value::Bool) { "=-" } else { "" };
    let label = |name: &str| name.to_lowercase().replace(':', "\\:");
    let action = match flag.value {
        Value::Switch => String::new(),
        Value::Bool => "::bool:(true false)".to_owned(),
        Value::OneOf(words) => format!(":{long}:({})", words.join(" ")),
        Value::File(name) => format!(":{}:_files", label(name)),
        Value::Directory => ":directory:_files -/".to_owned(),
        Value::Text(name) => format!(":{}:", label(name)),
    };
    let summary = flag.summary.replace('\'', "'\\''");
    let many = if flag.may_repeat { "*" } else { "" };
    match flag.short {
        Some(short) if flag.may_repeat => format!("'*'{{-{short},--{long}}}'[{summary}]{action}'"),
        Some(short) => format!("'(-{short} --{long})'{{-{short},--{long}}}'[{summary}]{action}'"),
        None => format!("'{many}--{long}{equals}[{summary}]{action}'"),
    }
}

pub(crate) fn fish() -> String {
    let mut lines = format!("{NOTICE}\nset -l commands {}\ncomplete -c coracle -f\n", command_names().join(" "));
    for command in COMMANDS {
        lines += &format!(
            "complete -c coracle -n __fish_use_subcommand -a {} -d {}\n",
            command.name,
            fish_quoted(command.summary)
        );
    }
    lines += "complete -c coracle -s h -l help -d 'print help'\n\n";
    let arguments = COMMANDS.iter().flat_map(|command| {
        command.arguments.iter().filter_map(|argument| Some((fish_argument(argument)?, command.name)))
    });
    let flags = COMMANDS.iter().flat_map(|command| command.flags.iter().map(|flag| (fish_flag(flag), command.name)));
    for (offer, commands) in grouped(arguments).into_iter().chain(grouped(flags)) {
        lines += &format!("complete -c coracle -n '__fish_seen_subcommand_from {}' {offer}\n", commands.join(" "));
    }
    for argument in COMMANDS.iter().flat_map(|command| command.arguments) {
        if let Completes::FilesAfter(words) = argument.completes {
            lines += &format!("complete -c coracle -n '__fish_seen_subcommand_from {}' -F\n", words.join(" "));
        }
    }
    lines += "\nset -l agent \"not __fish_seen_subcommand_from $commands\"\n";
    for flag in agent_flags().filter(|flag| flag.name != "help") {
        lines += &format!("complete -c coracle -n $agent {}\n", fish_flag(flag));
    }
    lines
}

fn fish_argument(argument: &Argument) -> Option<String> {
    match argument.completes {
        // Files after a certain word get their own condition.
        Completes::Nothing | Completes::FilesAfter(_) => None,
        Completes::Pods => Some(FISH_PODS.to_owned()),
        Completes::Words(_) => Some(format!("-a '{}'", words_of(argument).join(" "))),
        Completes::Files => Some("-F".to_owned()),
    }
}

fn fish_flag(flag: &Flag) -> String {
    let short = flag.short.map(|short| format!("-s {short} ")).unwrap_or_default();
    let offer = match flag.value {
        Value::Switch => String::new(),
        Value::Bool => "-a 'true false' ".to_owned(),
        Value::OneOf(words) => format!("-x -a '{}' ", words.join(" ")),
        Value::File(_) => "-r -F ".to_owned(),
        Value::Directory => "-x -a '(__fish_complete_directories)' ".to_owned(),
        Value::Text(_) => "-x ".to_owned(),
    };
    format!("{short}-l {} {offer}-d {}", flag.long(), fish_quoted(flag.summary))
}

fn fish_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\\'"))
}

/// Groups second values by their first value, in the order of first appearance.
fn grouped<T>(pairs: impl Iterator<Item = (String, T)>) -> Vec<(String, Vec<T>)> {
    let mut groups: Vec<(String, Vec<T>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

fn agent_flags() -> impl Iterator<Item = &'static Flag> {
    AGENT_FLAGS.iter().flat_map(|section| section.flags)
}

/// For example `-o` and `--output`.
fn names(flag: &Flag) -> impl Iterator<Item = String> + use<> {
    flag.short.map(|short| format!("-{short}")).into_iter().chain([format!("--{}", flag.long())])
}

fn command_names() -> Vec<&'static str> {
    COMMANDS.iter().map(|command| command.name).collect()
}

fn takes_a_pod(command: &CommandEntry) -> bool {
    command.arguments.first().is_some_and(|argument| matches!(argument.completes, Completes::Pods))
}

fn words_of(argument: &Argument) -> Vec<&'static str> {
    match argument.completes {
        Completes::Words([]) => command_names(),
        Completes::Words(words) => words.to_vec(),
        Completes::Nothing | Completes::Pods | Completes::Files | Completes::FilesAfter(_) => Vec::new(),
    }
}

const HELP: [&str; 2] = ["-h", "--help"];

const NOTICE: &str =
    "# Completion of coracle(8). Generated from src/cli/command_table.rs: UPDATE_GOLDEN=1 cargo test --test manual\n";

const FISH_PODS: &str = r#"-a "(coracle pods 2>/dev/null | string match -rv '^(NAMESPACE|No) ' | string replace -r '^\\S+ +(\\S+).*' '\$1')""#;
