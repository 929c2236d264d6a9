//! Commands of kubectl, crictl, podman and docker, in the words of this program. Pure.

/// A first word of another tool: the words that replace it, or what to do instead.
enum Alias {
    Words(&'static [&'static str]),
    Hint(&'static str),
}

/// The command line in this program's words; an error is a hint.
pub(super) fn translated(arguments: &[String]) -> Result<Vec<String>, String> {
    let (words, rest) = match arguments {
        [verb, noun, rest @ ..] if verb == "get" && !noun.starts_with('-') => match of_noun(noun) {
            Some(words) => (words, rest),
            None => return Err(format!("get {noun}: this node has {NOUNS}; coracle --help lists all commands")),
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

const NOUNS: &str = "pods, events, images, devices and a node";

/// `coracle get NOUN`, `kubectl get NOUN`.
fn of_noun(noun: &str) -> Option<&'static [&'static str]> {
    match noun {
        "pods" | "pod" | "po" | "all" => Some(&["pods"]),
        "events" | "event" | "ev" => Some(&["events"]),
        "images" | "image" => Some(&["images"]),
        "devices" | "device" => Some(&["devices"]),
        "nodes" | "node" | "no" => Some(&["status"]),
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
        "info" => Alias::Words(&["status"]),
        "create" | "run" | "runp" => {
            Alias::Hint("a pod runs from a manifest: coracle apply -f FILE, or put FILE into the manifest directory")
        }
        "edit" | "patch" | "set" | "replace" => Alias::Hint(
            "edit the manifest: a changed file in the manifest directory takes effect, or coracle apply -f FILE",
        ),
        "kill" => Alias::Hint("coracle restart POD restarts its containers, coracle delete POD ends it"),
        "rollout" => Alias::Hint("coracle restart POD, coracle rollback POD"),
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
            ("get nodes", "status"),
            ("logs web", "logs web"),
            ("--max-pods 3", "--max-pods 3"),
        ] {
            assert_eq!(of(line).as_deref(), Ok(own));
        }
        assert_eq!(translated(&[]), Ok(Vec::new()));
    }

    #[test]
    fn other_verbs_have_a_hint() {
        let verbs = ["get deployments", "run nginx", "kill web", "drain node1", "edit pod web"];
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
        assert!(own.into_iter().all(|line| COMMANDS.contains(&line.split(' ').next().unwrap())));
        for command in COMMANDS {
            assert_eq!(of(command).as_deref(), Ok(*command));
        }
    }
}
