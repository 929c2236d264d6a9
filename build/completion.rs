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
        .map(|(value, patterns)| {
            format!("        {})\n            value={value} ;;\n", patterns.join(" | \\\n            "))
        })
        .collect();
    let words: String = COMMANDS.iter().map(bash_words).collect();
    let agent: Vec<String> = agent_flags().flat_map(names).collect();
    format!(
        r#"{NOTICE}
# What completes the value of the flag $1; empty if it has no value.
_coracle_value() {{
    case $1 in
{values}        *)
            value='' ;;
    esac
}}

# The pods, their containers and the images of this node, if its agent answers.
_coracle_pods() {{
    local names
    names=$(coracle pods -o name 2>/dev/null)
    words+=" ${{names//pod\//}}"
}}

_coracle_containers() {{
    local word
    for word in "${{COMP_WORDS[@]:2}}"; do
        [[ -z $word || $word == -* ]] && continue
        words=$(coracle pods "$word" -o jsonpath='{CONTAINERS}' 2>/dev/null) && return
    done
    words=$(coracle pods -o jsonpath='{ALL_CONTAINERS}' 2>/dev/null)
}}

_coracle_images() {{
    compopt +o filenames 2>/dev/null
    words=$(coracle images 2>/dev/null | while read -r name _; do
        [[ $name == IMAGE || $name == No || $name == '<none>' ]] || echo "$name"; done)
    # The shell splits words at colons.
    local at=$COMP_CWORD
    while ((at > 2)) && [[ ${{COMP_WORDS[at]}} == : || ${{COMP_WORDS[at - 1]}} == : ]]; do
        current=${{COMP_WORDS[--at]}}$current
    done
    [[ $current != *:* ]] || prefix=${{current%:*}}:
}}

_coracle() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command='' words='' value
    local last place=0 first='' prefix='' at
    # Where = ends a word, a value stands two words after its flag.
    [[ $current != = ]] || current=''
    [[ $previous != = ]] || previous=${{COMP_WORDS[COMP_CWORD - 2]}}
    ((COMP_CWORD == 1)) || command=${{COMP_WORDS[1]}}
    [[ $command != -* ]] || command=''
    COMPREPLY=()

    _coracle_value "$command $previous"
    case $value in
        '') ;;
        files) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        directories) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        text) return ;;
        containers) _coracle_containers ;;
        switch) [[ $current == -* ]] || words='true false' ;;
        *) words=$value ;;
    esac

    # place counts the arguments before this one, first is the first of them.
    for ((at = 2; at < COMP_CWORD; at++)); do
        last=${{COMP_WORDS[at]}}
        if [[ $last == -* ]]; then
            _coracle_value "$command $last"
            [[ -z $value ]] || ((++at))
            [[ ${{COMP_WORDS[at]}} != = ]] || ((++at))
        else
            ((place++)) || first=$last
        fi
    done
    if [[ -z $words ]]; then
        case $command in
{words}            *)
                words='{agent}'
                [[ $COMP_CWORD -gt 1 || $current == -* ]] || words='{commands}'
                ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    COMPREPLY=("${{COMPREPLY[@]#"$prefix"}}")
}}

complete -o filenames -F _coracle coracle
"#,
        agent = agent.join(" "),
        commands = command_names().join(" "),
    )
}

/// What completes the value of a flag, for the bash code.
fn bash_value(command: &str, flag: &Flag) -> Option<String> {
    Some(match flag.value {
        // A switch takes a value only after `=`, and only the agent's switches accept one.
        Value::Switch if !command.is_empty() || matches!(flag.name, "help" | "version") => return None,
        Value::Switch | Value::Bool => "switch".to_owned(),
        Value::OneOf(words) => format!("'{}'", words.join(" ")),
        Value::File(_) => "files".to_owned(),
        Value::Directory => "directories".to_owned(),
        Value::Text(_) => "text".to_owned(),
        Value::Container => "containers".to_owned(),
    })
}

fn bash_words(command: &CommandEntry) -> String {
    const FILES: &str = r#"{ mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }"#;
    let flags: Vec<String> = command.flags.iter().flat_map(names).chain(HELP.map(str::to_owned)).collect();
    let mut lines = format!("            {})\n                words='{}'\n", command.name, flags.join(" "));
    let mut line = |unless: &str, action: &str| {
        lines += &format!("                [[ $current == -*{unless} ]] || {action}\n");
    };
    for (at, argument) in command.arguments.iter().enumerate() {
        let elsewhere = format!(" || $place -ne {at}");
        match argument.completes {
            Completes::Nothing => {}
            Completes::Words(_) => line(&elsewhere, &format!("words='{}'", words_of(argument).join(" "))),
            Completes::Pod => line(&elsewhere, "{ words=''; _coracle_pods; }"),
            Completes::Pods => line("", "{ words=''; _coracle_pods; }"),
            Completes::PodsAndFiles => {
                line("", r#"{ words=$(compgen -f -- "$current"); compopt -o nospace 2>/dev/null; _coracle_pods; }"#);
            }
            Completes::Files => line("", FILES),
            Completes::After { files, images } => {
                line(&format!(" || $first != @({})", files.join("|")), FILES);
                line(&format!(" || $first != @({})", images.join("|")), "_coracle_images");
            }
        }
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
# The pods, their containers and the images of this node, if its agent answers.
_coracle_pods() {{
    local -a pods
    pods=(${{${{(f)"$(coracle pods -o name 2>/dev/null)"}}#pod/}})
    compadd $pods
}}

_coracle_pods_and_files() {{ _alternative 'pods:pod:_coracle_pods' 'files:file:_files' }}

_coracle_containers() {{
    local word found
    for word in ${{words[3,-1]:#-*}}; do
        found=$(coracle pods $word -o jsonpath='{CONTAINERS}' 2>/dev/null) && break
    done
    [[ -n $found ]] || found=$(coracle pods -o jsonpath='{ALL_CONTAINERS}' 2>/dev/null)
    compadd ${{(s: :)found}}
}}

_coracle_images() {{
    local -a images
    images=(${{${{(f)"$(coracle images 2>/dev/null)"}}[2,-1]}})
    compadd ${{${{images%% *}}:#<none>}}
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
            Completes::Pod => format!("'{place}::{label}:_coracle_pods'"),
            Completes::Pods => format!("'*:{label}:_coracle_pods'"),
            Completes::PodsAndFiles => format!("'*:{label}:_coracle_pods_and_files'"),
            Completes::Words(_) => format!("'{place}::{label}:({})'", words_of(argument).join(" ")),
            Completes::Files => format!("'*:{label}:_files'"),
            Completes::After { images, .. } => {
                let is_image = images.iter().map(|word| format!("$words[3] == {word}")).collect::<Vec<_>>();
                format!("\"*:{label}:$([[ {} ]] && echo _coracle_images || echo _files)\"", is_image.join(" || "))
            }
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
        "            {})\n                _arguments -s {}\n                return ;;\n",
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
        Value::Container => ":container:_coracle_containers".to_owned(),
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
    let commands = command_names().join(" ");
    let mut lines = format!("{NOTICE}{FISH_FUNCTIONS}\nset -l commands {commands}\ncomplete -c coracle -f\n");
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
        if let Completes::After { files, images } = argument.completes {
            for (words, offer) in [(files, "-F"), (images, "-a '(__coracle_images)'")] {
                lines += &format!("complete -c coracle -n '__fish_seen_subcommand_from {}' {offer}\n", words.join(" "));
            }
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
        Completes::Nothing | Completes::After { .. } => None,
        Completes::Pod | Completes::Pods => Some("-a '(__coracle_pods)'".to_owned()),
        Completes::PodsAndFiles => Some("-F -a '(__coracle_pods)'".to_owned()),
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
        Value::Container => "-x -a '(__coracle_containers)' ".to_owned(),
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

fn words_of(argument: &Argument) -> Vec<&'static str> {
    match argument.completes {
        Completes::Words([]) => command_names(),
        Completes::Words(words) => words.to_vec(),
        Completes::Nothing
        | Completes::Pod
        | Completes::Pods
        | Completes::PodsAndFiles
        | Completes::Files
        | Completes::After { .. } => Vec::new(),
    }
}

const HELP: [&str; 2] = ["-h", "--help"];

const NOTICE: &str =
    "# Completion of coracle(8). Generated from src/cli/command_table.rs: UPDATE_GOLDEN=1 cargo test --test manual\n";

/// Of a pod, and of all pods.
const CONTAINERS: &str = "{.spec.initContainers[*].name} {.spec.containers[*].name}";
const ALL_CONTAINERS: &str = "{.items[*].spec.containers[*].name}";

const FISH_FUNCTIONS: &str = r#"
# The pods, their containers and the images of this node, if its agent answers.
function __coracle_pods
    coracle pods -o name 2>/dev/null | string replace 'pod/' ''
end

function __coracle_containers
    set -l of_pod '{.spec.initContainers[*].name} {.spec.containers[*].name}'
    for word in (commandline -opc)[3..]
        string match -q -- '-*' $word; and continue
        set -l names (coracle pods $word -o jsonpath=$of_pod 2>/dev/null)
        and string split -n ' ' -- $names
        and return
    end
    coracle pods -o jsonpath='{.items[*].spec.containers[*].name}' 2>/dev/null | string split -n ' '
end

function __coracle_images
    coracle images 2>/dev/null | string match -rv '^(IMAGE|No|<none>) ' | string replace -r ' .*' ''
end
"#;
