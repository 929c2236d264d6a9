//! The outcome of a command, from the end of the runtime's error stream. Pure.

use serde_json::Value;

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Exited(u8),
    /// It did not run or did not complete; why.
    Failed(String),
}

impl Outcome {
    /// `status` is a v1.Status; it is empty if the runtime dies while the command runs.
    pub(super) fn of(status: &[u8]) -> Self {
        let Ok(status) = serde_json::from_slice::<Value>(status) else {
            return Self::Failed(match String::from_utf8_lossy(status).trim() {
                "" => "the runtime closed the connection before the command exited".to_owned(),
                text => one_line(text),
            });
        };
        let text = |path: &str| status.pointer(path).and_then(Value::as_str);
        if text("/status") == Some("Success") {
            return Self::Exited(0);
        }
        let causes = status.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten();
        let mut codes = causes.filter(|cause| cause.get("reason").and_then(Value::as_str) == Some("ExitCode"));
        let code = codes.find_map(|cause| cause.get("message")?.as_str()?.parse().ok());
        match code {
            Some(code) => Self::Exited(code),
            None => Self::Failed(one_line(text("/message").unwrap_or("the runtime gave no reason"))),
        }
    }
}

/// Runtimes include multi-line messages of other programs.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_read_from_the_causes() {
        let exited = |code: &str| {
            let status = format!(
                r#"{{"metadata":{{}},"status":"Failure","message":"command terminated with non-zero exit code",
                    "reason":"NonZeroExitCode","details":{{"causes":[{{"reason":"x","message":"1"}},
                    {{"reason":"ExitCode","message":"{code}"}}]}}}}"#
            );
            Outcome::of(status.as_bytes())
        };
        assert_eq!(exited("3"), Outcome::Exited(3));
        assert_eq!(exited("255"), Outcome::Exited(255));
        assert_eq!(exited("x"), Outcome::Failed("command terminated with non-zero exit code".to_owned()));
        assert_eq!(Outcome::of(br#"{"metadata":{},"status":"Success"}"#), Outcome::Exited(0));
    }

    #[test]
    fn unknown_outcome_is_a_failure() {
        let failed = |status: &str| match Outcome::of(status.as_bytes()) {
            Outcome::Failed(line) => line,
            Outcome::Exited(code) => panic!("{code}"),
        };
        assert_eq!(failed(""), "the runtime closed the connection before the command exited");
        assert_eq!(failed("no\nJSON\n"), "no JSON");
        assert_eq!(failed("{}"), "the runtime gave no reason");
        assert_eq!(failed(r#"{"status":"Failure","message":"no such file"}"#), "no such file");
        assert_eq!(failed(r#"{"status":1,"details":{"causes":[1,{"reason":"ExitCode"}]}}"#), failed("{}"));
    }
}
