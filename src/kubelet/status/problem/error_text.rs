//! The cause in an error text of a runtime or a registry. Pure.

/// Clauses that runtimes put before the cause. `*` stands for a word or a quoted text.
const WRAPPERS: [&str; 29] = [
    "rpc error",
    "code = * desc = ",
    "failed to pull and unpack image *",
    "failed to resolve reference *",
    "failed to resolve image *",
    "failed to pull image *",
    "failed to copy",
    "failed to do request",
    "failed to fetch anonymous token",
    "failed to authorize",
    "unexpected status",
    "failed to create containerd task",
    "failed to create containerd container",
    "failed to create shim task",
    "failed to start container *",
    "failed to create container *",
    "failed to generate container * spec",
    "failed to generate spec",
    "failed to apply OCI options",
    "OCI runtime create failed",
    "runc create failed",
    "crun",
    "unable to start container process",
    "error during container init",
    "failed to setup network for sandbox *",
    "failed to create pod sandbox",
    "Failed to create pod sandbox",
    "failed to get sandbox runtime",
    "failed to start sandbox *",
];

/// The text without the clauses that only name the calls around the cause, in one line and without a repetition.
///
/// `rpc error: code = Unknown desc = failed to pull and unpack image "a:1": failed to resolve reference "a:1": a:1: not
/// found` becomes `a:1: not found`.
pub(super) fn innermost(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut rest = line.as_str();
    while let Some(shorter) = WRAPPERS.iter().find_map(|wrapper| without(rest, wrapper)) {
        rest = shorter;
    }
    let mut clauses: Vec<&str> = Vec::new();
    for clause in rest.split(": ") {
        if clauses.last() != Some(&clause) {
            clauses.push(clause);
        }
    }
    clauses.join(": ")
}

/// The text after `wrapper` and its colon; `None` if it does not start with it, or nothing follows.
fn without<'a>(text: &'a str, wrapper: &str) -> Option<&'a str> {
    let mut rest = text;
    for (index, literal) in wrapper.split('*').enumerate() {
        if index > 0 {
            rest = after_word(rest)?;
        }
        rest = rest.strip_prefix(literal)?;
    }
    let rest = if wrapper.ends_with("= ") { rest } else { rest.strip_prefix(": ")? };
    Some(rest).filter(|rest| !rest.is_empty())
}

/// The text after its first word, which ends before a space or a colon and space, or its first quoted text.
fn after_word(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        return quoted.split_once('"').map(|(_, rest)| rest);
    }
    let end = text.find(' ').unwrap_or(text.len());
    let (word, _) = text.split_at_checked(end)?;
    text.strip_prefix(word.strip_suffix(':').unwrap_or(word))
}

#[cfg(test)]
mod tests {
    use super::innermost;

    #[track_caller]
    fn check(text: &str, cause: &str) {
        assert_eq!(innermost(text), cause);
    }

    #[test]
    fn only_the_cause_of_a_nested_error_remains() {
        check(
            "rpc error: code = NotFound desc = failed to pull and unpack image \"r.example/a:1\": failed to resolve \
             reference \"r.example/a:1\": r.example/a:1: not found",
            "r.example/a:1: not found",
        );
        check(
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
             failed: unable to start container process: exec: \"x\": executable file not found in $PATH: unknown",
            "exec: \"x\": executable file not found in $PATH: unknown",
        );
        check(
            "failed to setup network for sandbox \"0a1b\": plugin type=\"bridge\" failed (add): no addresses left",
            "plugin type=\"bridge\" failed (add): no addresses left",
        );
        check("failed to do request: Head \"https://r/v2/\": dial tcp: lookup r: no such host", {
            "Head \"https://r/v2/\": dial tcp: lookup r: no such host"
        });
    }

    #[test]
    fn texts_without_a_known_clause_stay() {
        for text in ["", "not found", "failed to copy", "rpc error", "secret \"a\" not found", "failed to copy: "] {
            check(text, text.trim_end().trim_end_matches(": "));
        }
    }

    #[test]
    fn repeated_clauses_and_line_breaks_are_removed() {
        check("a: not found: not found: not found", "a: not found");
        check("line one\n  line two", "line one line two");
    }
}
