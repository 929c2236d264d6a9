//! The result of one check of the node, and of all of them. Pure.

use serde::Serialize;

/// In the order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) enum Verdict {
    Ok,
    /// Pods run, but something will not work or needs attention.
    Warning,
    /// The agent does not start, or no pod runs.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Finding {
    /// Such as `runtime`.
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// The command or setting that mends it; empty if there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) advice: String,
}

/// The output of `coracle doctor -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct Diagnosis {
    /// The worst of all.
    pub(in crate::cli) verdict: Verdict,
    checks: Vec<Finding>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, text: text.into(), advice: String::new() }
    }

    pub(super) fn warning(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, text: text.into(), advice: advice.into() }
    }

    pub(super) fn failed(check: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failed, text: text.into(), advice: advice.into() }
    }

    /// `  ok       runtime: containerd 1.7.2`, and the advice below it.
    fn lines(&self) -> String {
        let word = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
        };
        let head = format!("{word:<8} {}: {}\n", self.check, one_line(&self.text));
        if self.advice.is_empty() { head } else { format!("{head}         -> {}\n", one_line(&self.advice)) }
    }
}

impl Diagnosis {
    pub(super) fn new(checks: Vec<Finding>) -> Self {
        let verdict = checks.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
        Self { verdict, checks }
    }

    /// All checks, then a summary.
    pub(in crate::cli) fn text(&self) -> String {
        let mut text: String = self.checks.iter().map(Finding::lines).collect();
        let count = |verdict| self.checks.iter().filter(|finding| finding.verdict == verdict).count();
        let (warnings, failed) = (count(Verdict::Warning), count(Verdict::Failed));
        text.push_str(&match (failed, warnings) {
            (0, 0) => "This node can run pods.\n".to_owned(),
            (0, _) => format!("This node can run pods; {warnings} to look at.\n"),
            (_, _) => format!("{failed} failed, {warnings} to look at.\n"),
        });
        text
    }

    /// The text without what is well, for a log.
    pub(super) fn complaints(&self) -> String {
        self.checks.iter().filter(|finding| finding.verdict != Verdict::Ok).map(Finding::lines).collect()
    }
}

/// Messages of runtimes may have several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_check_decides_and_advice_follows_its_check() {
        let diagnosis = Diagnosis::new(vec![
            Finding::ok("swap", "off"),
            Finding::warning("clock", "it is 1970", "set the\nclock"),
            Finding::failed("runtime", "no answer\n at all", "start it"),
        ]);
        assert_eq!(diagnosis.verdict, Verdict::Failed);
        let text = "ok       swap: off\n\
                    warning  clock: it is 1970\n         -> set the clock\n\
                    failed   runtime: no answer at all\n         -> start it\n\
                    1 failed, 1 to look at.\n";
        assert_eq!(diagnosis.text(), text);
        assert!(diagnosis.complaints().starts_with("warning  clock") && diagnosis.complaints().ends_with("start it\n"));
        let json = serde_json::to_value(&diagnosis).unwrap();
        assert_eq!(json["verdict"], "failed");
        assert_eq!(json["checks"][0], serde_json::json!({ "check": "swap", "verdict": "ok", "text": "off" }));
    }

    #[test]
    fn nothing_wrong_is_said_in_one_line() {
        let diagnosis = Diagnosis::new(vec![Finding::ok("swap", "off")]);
        assert_eq!((diagnosis.verdict, diagnosis.complaints()), (Verdict::Ok, String::new()));
        assert!(diagnosis.text().ends_with("This node can run pods.\n"));
    }
}
