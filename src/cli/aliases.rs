//! Commands of kubectl, crictl, podman and docker, in the words of this program. Pure.

use super::workload_words::kind_of_word;

/// A first word of another tool: the words that replace it, or what to do instead.
enum Alias {
    Words(&'static [&'static str]),
    Hint(&'static str),
}

/// The command line in this program's words; an error is a hint.
pub(super) fn translated(arguments: &[String]) -> Result<Vec<String>, String> {
    let (words, rest) = match arguments {
        [verb, noun, rest @ ..] if is_superfluous(noun, verb, rest.first()) => {
            return translated(&[std::slice::from_ref(verb), rest].concat());
        }
        // kubectl's `describe deployment web`.
        [verb, noun, name, rest @ ..]
            if kind_of_word(noun).is_some() && !name.starts_with('-') && takes_a_workload(verb) =>
        {
            let name = [noun, "/", name].concat();
            return translated(&[&[verb.clone(), name][..], rest].concat());
        }
        [verb, noun, rest @ ..] if verb == "get" && matches!(kind_of_word(noun), Some("CronJob" | "Job")) => {
            return Ok([&["jobs".to_owned()], rest].concat());
        }
        [verb, noun, rest @ ..] if verb == "get" && kind_of_word(noun).is_some() => {
            // All of a kind.
            return Ok([&["pods".to_owned(), [noun, "/"].concat()], rest].concat());
        }
        // With a workload, kubectl's words are for pods of this node; a rollout of the fleet has a name without a kind.
        [verb, action, rest @ ..] if verb == "rollout" && is_about_a_workload(rest) => {
            let own_command = match action.as_str() {
                "undo" => "rollback",
                "restart" => "restart",
                "pause" => "hold",
                "resume" => "confirm",
                "status" => "wait",
                "history" => "describe",
                _ => return Err(format!("rollout {action}: coracle rollback, restart, hold or confirm POD")),
            };
            return translated(&[&[own_command.to_owned()], rest].concat());
        }
        [verb, noun, ..] if verb == "get" && is_path_of_pod_or_workload(noun) => {
            (&["pods"][..], arguments.get(1..).unwrap_or_default())
        }
        [verb, noun, rest @ ..] if verb == "describe" && is_node(noun) => {
            // The one node needs no name.
            let names = rest.iter().take_while(|word| !word.starts_with('-')).count();
            (&["status"][..], rest.get(names..).unwrap_or_default())
        }
        [verb, noun, rest @ ..] if verb == "get" && !noun.starts_with('-') => match of_noun(noun) {
            Some(words) => (words, rest),
            None => return Err(format!("get {noun}: this node has {NOUNS}; coracle --help lists all commands")),
        },
        [verb, action, rest @ ..] if matches!(&**verb, "images" | "image") => match action.as_str() {
            "ls" | "list" => (&["images"][..], rest),
            "rm" | "rmi" | "delete" => (&["images", "remove"][..], rest),
            "load" => (&["images", "import"][..], rest),
            _ => (&["images"][..], arguments.get(1..).unwrap_or_default()),
        },
        [verb, rest @ ..] => match of_verb(verb) {
            Some(Alias::Words(words)) => (words, rest),
            Some(Alias::Hint(hint)) => return Err(format!("{verb}: {hint}")),
            None => return Ok(arguments.to_vec()),
        },
        [] => return Ok(Vec::new()),
    };
    Ok(words.iter().map(|&word| word.to_owned()).chain(rest.iter().cloned()).collect())
}

/// Commands whose first argument is a pod, also in the words of other tools.
const TAKE_A_POD: [&str; 14] = [
    "attach",
    "delete",
    "describe",
    "events",
    "exec",
    "inspect",
    "log",
    "logs",
    "port-forward",
    "restart",
    "rm",
    "start",
    "stop",
    "wait",
];

/// Commands that kubectl has for workloads.
fn takes_a_workload(verb: &str) -> bool {
    TAKE_A_POD.contains(&verb) || ["confirm", "get", "hold", "rollback"].contains(&verb)
}

/// `deployment/web`, or `deployment web`.
fn is_about_a_workload(words: &[String]) -> bool {
    let mut nouns = words.iter().filter(|word| !word.starts_with('-'));
    let Some(first) = nouns.next() else { return false };
    is_path_of_pod_or_workload(first) || (kind_of_word(first).is_some() || is_pods(first)) && nouns.next().is_some()
}

/// `pod/web`, `deployment/web`.
fn is_path_of_pod_or_workload(noun: &str) -> bool {
    noun.split_once('/').is_some_and(|(word, _)| word == "pod" || kind_of_word(word).is_some())
}

/// kubectl's `describe pod web` and `top pods`.
fn is_superfluous(noun: &str, verb: &str, next: Option<&String>) -> bool {
    let has_name = next.is_some_and(|name| !name.starts_with('-'));
    match verb {
        "top" => is_pods(noun) || is_node(noun),
        _ => is_pods(noun) && has_name && TAKE_A_POD.contains(&verb),
    }
}

fn is_pods(noun: &str) -> bool {
    matches!(noun, "pods" | "pod" | "po")
}

fn is_node(noun: &str) -> bool {
    matches!(noun, "nodes" | "node" | "no")
}

const NOUNS: &str = "pods, workloads, claims, events, images, devices and a node";

/// `coracle get NOUN`, `kubectl get NOUN`.
fn of_noun(noun: &str) -> Option<&'static [&'static str]> {
    match noun {
        _ if is_pods(noun) || noun == "all" => Some(&["pods"]),
        _ if is_node(noun) => Some(&["status"]),
        "events" | "event" | "ev" => Some(&["events"]),
        "images" | "image" => Some(&["images"]),
        "devices" | "device" => Some(&["devices"]),
        "persistentvolumeclaims" | "persistentvolumeclaim" | "pvc" | "claims" => Some(&["claims"]),
        _ => None,
    }
}

fn of_verb(verb: &str) -> Option<Alias> {
    Some(match verb {
        "ps" | "pod" | "po" | "get" | "list" | "ls" => Alias::Words(&["pods"]),
        "rm" => Alias::Words(&["delete"]),
        "inspect" | "inspectp" | "show" => Alias::Words(&["describe"]),
        "log" => Alias::Words(&["logs"]),
        "image" => Alias::Words(&["images"]),
        "rmi" => Alias::Words(&["images", "remove"]),
        "prune" => Alias::Words(&["images", "prune"]),
        "load" => Alias::Words(&["images", "import"]),
        "stats" => Alias::Words(&["top"]),
        "cluster-info" | "info" => Alias::Words(&["status"]),
        "compose" | "create" | "play" | "run" | "runp" => {
            Alias::Hint("a pod runs from a manifest: coracle apply -f FILE, or put FILE into the manifest directory")
        }
        "edit" | "patch" | "set" => Alias::Hint(
            "edit the manifest: a changed file in the manifest directory takes effect, or coracle apply -f FILE",
        ),
        "pause" | "unpause" => Alias::Hint("coracle stop POD ends a pod until coracle start POD"),
        "debug" => Alias::Hint("coracle exec -it POD -- sh, coracle describe POD, coracle logs POD"),
        "kill" => Alias::Hint("coracle restart POD restarts its containers, coracle delete POD ends it"),
        "scale" | "expose" | "autoscale" => Alias::Hint("a node runs pods, the cluster has the rest: use kubectl"),
        "drain" | "cordon" | "uncordon" | "taint" | "label" => {
            Alias::Hint("this changes the Node object of the cluster: use kubectl")
        }
        "stopp" => Alias::Words(&["stop"]),
        "pull" => Alias::Words(&["images", "pull"]),
        "build" | "push" | "tag" => Alias::Hint("build images elsewhere, then coracle images import FILE"),
        "login" => Alias::Hint("credentials are imagePullSecrets of the pod, or config.json in the root directory"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        translated(&words).map(|words| words.join(" "))
    }

    #[test]
    fn words_of_other_tools_are_replaced() {
        for (line, own) in [
            ("ps", "pods"),
            ("get pods -A", "pods -A"),
            ("get po web -o name", "pods web -o name"),
            ("get -A", "pods -A"),
            ("get events", "events"),
            ("rm web", "delete web"),
            ("inspect web", "describe web"),
            ("rmi nginx:1", "images remove nginx:1"),
            ("images rm nginx:1", "images remove nginx:1"),
            ("image ls", "images"),
            ("images pull nginx:1", "images pull nginx:1"),
            ("images -o json", "images -o json"),
            ("get nodes", "status"),
            ("get pod/web -o name", "pods pod/web -o name"),
            ("get deployments -o wide", "pods deployments/ -o wide"),
            ("get deploy web", "pods deploy/web"),
            ("get pvc", "claims"),
            ("get jobs -o json", "jobs -o json"),
            ("get job backup", "pods job/backup"),
            ("describe sts db -n x", "describe sts/db -n x"),
            ("delete deployment/web", "delete deployment/web"),
            ("rollout undo deployment/web", "rollback deployment/web"),
            ("rollout undo deployment web", "rollback deployment/web"),
            ("rollout status ds/agent", "wait ds/agent"),
            ("rollout pause pod/web", "hold pod/web"),
            ("rollout status camera", "rollout status camera"),
            ("rollout resume deployment", "rollout resume deployment"),
            ("rollout start camera --daemonset n/d", "rollout start camera --daemonset n/d"),
            ("rollout", "rollout"),
            ("describe pod web -n x", "describe web -n x"),
            ("rm pods web db", "delete web db"),
            ("describe node n1 -o json", "status -o json"),
            ("describe pod", "describe pod"),
            ("logs pod -f", "logs pod -f"),
            ("top pods", "top"),
            ("top node", "top"),
            ("logs web", "logs web"),
            ("--max-pods 3", "--max-pods 3"),
        ] {
            assert_eq!(of(line).as_deref(), Ok(own));
        }
        assert_eq!(translated(&[]), Ok(Vec::new()));
    }

    #[test]
    fn other_verbs_have_a_hint() {
        let verbs = [
            "get ingresses",
            "rollout begin deployment/web",
            "run nginx",
            "kill web",
            "drain node1",
            "edit pod web",
            "compose up",
            "pause web",
        ];
        for line in verbs {
            let hint = of(line).unwrap_err();
            assert!(hint.contains("coracle") || hint.contains("kubectl"), "{hint}");
        }
    }

    #[test]
    fn replacements_are_commands_and_no_command_is_replaced() {
        use crate::cli::command_table::COMMANDS;
        let (verbs, nouns) = (["ps", "rm", "inspect", "log", "image", "rmi", "load", "stats", "info"], ["pods", "po"]);
        let own = verbs
            .map(|verb| of(verb).unwrap())
            .into_iter()
            .chain(nouns.map(|noun| of(&format!("get {noun}")).unwrap()));
        let commands: Vec<&str> = COMMANDS.iter().map(|form| form.name).collect();
        assert!(own.into_iter().all(|line| commands.contains(&line.split(' ').next().unwrap())));
        for command in commands {
            assert_eq!(of(command).as_deref(), Ok(command));
        }
    }
}
