//! Checks of the lean profile: what the runtime does not do for it. Pure.

use serde_json::Value;

use super::facts::LeanFacts;
use super::finding::Finding;
use crate::cli::gc_variables::GC_VARIABLES;
use crate::kubelet::kuberuntime::SHIM_GROUP;

const LEAN_PROFILE: &str = "lean profile";
/// Boards below this are told of the profile.
const SMALL_MEMORY_BYTES: u64 = 1 << 30;

pub(super) fn check(facts: &LeanFacts) -> Vec<Finding> {
    let LeanFacts { is_asked_for, passes_groups, environment, memory_bytes } = facts;
    if !is_asked_for {
        return without_profile(*passes_groups, *memory_bytes).into_iter().collect();
    }
    let mut findings = Vec::new();
    if *passes_groups == Some(false) {
        let text = format!("containerd does not pass {SHIM_GROUP} to its shim, so each pod has a shim of its own");
        let advice = "coracle runtime-config containerd prints a configuration that does";
        findings.push(Finding::warning(LEAN_PROFILE, text, advice));
    }
    let missing: Vec<&str> = match environment {
        Some(variables) => {
            let is_missing = |name: &str| !variables.iter().any(|variable| variable.split('=').next() == Some(name));
            GC_VARIABLES.iter().map(|(name, _)| *name).filter(|name| is_missing(name)).collect()
        }
        None => Vec::new(),
    };
    if !missing.is_empty() {
        let text = format!("the runtime runs without {}, and collects garbage late", missing.join(" and "));
        let advice = "coracle runtime-config containerd --unit (or crio) prints a drop-in of its unit";
        findings.push(Finding::warning(LEAN_PROFILE, text, advice));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(LEAN_PROFILE, "the runtime is configured for it"));
    }
    findings
}

fn without_profile(passes_groups: Option<bool>, memory_bytes: u64) -> Option<Finding> {
    if passes_groups == Some(true) {
        let text = format!("containerd passes {SHIM_GROUP} to its shim, so any pod can join the shim of another one");
        return Some(Finding::warning(LEAN_PROFILE, text, "--runtime-profile=lean lets the agent alone choose"));
    }
    (memory_bytes < SMALL_MEMORY_BYTES).then(|| {
        let text = format!("not in use; the machine has {} MB", memory_bytes >> 20);
        let advice = "with --runtime-profile=lean and coracle runtime-config the runtime takes less memory";
        Finding { advice: advice.to_owned(), ..Finding::ok(LEAN_PROFILE, text) }
    })
}

/// Whether containerd passes the annotation of groups, by its configuration in the verbose status; `None`: it is not
/// containerd's.
pub(super) fn passes_groups(config: &str) -> Option<bool> {
    let config: Value = serde_json::from_str(config).ok()?;
    let containerd = config.get("containerd")?;
    let runtimes = containerd.get("runtimes")?;
    let runtime = containerd.get("defaultRuntimeName").and_then(Value::as_str).unwrap_or("runc");
    let patterns = runtimes.get(runtime)?.get("PodAnnotations").and_then(Value::as_array);
    let mut patterns = patterns.into_iter().flatten().filter_map(Value::as_str);
    Some(patterns.any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => SHIM_GROUP.starts_with(start),
        None => pattern == SHIM_GROUP,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn facts() -> LeanFacts {
        let environment = vec!["PATH=/bin".to_owned(), "GOGC=20".to_owned(), "GOMEMLIMIT=64MiB".to_owned()];
        LeanFacts {
            is_asked_for: true,
            passes_groups: Some(true),
            environment: Some(environment),
            memory_bytes: 256 << 20,
        }
    }

    #[track_caller]
    fn expect(facts: &LeanFacts, expected: &[(Verdict, &str)]) {
        let findings = check(facts);
        let found: Vec<Verdict> = findings.iter().map(|finding| finding.verdict).collect();
        assert_eq!(found, expected.iter().map(|(verdict, _)| *verdict).collect::<Vec<_>>(), "{findings:?}");
        for (finding, (_, text)) in findings.iter().zip(expected) {
            assert!(finding.text.contains(text), "{finding:?}");
        }
    }

    #[test]
    fn doctor_says_what_is_not_lean() {
        expect(&facts(), &[(Verdict::Ok, "configured")]);
        expect(&LeanFacts { passes_groups: None, environment: None, ..facts() }, &[(Verdict::Ok, "configured")]);
        let own = LeanFacts { passes_groups: Some(false), ..facts() };
        expect(&own, &[(Verdict::Warning, "a shim of its own")]);
        let late = LeanFacts { environment: Some(vec!["GOGC=20".to_owned()]), ..own };
        expect(&late, &[(Verdict::Warning, "a shim of its own"), (Verdict::Warning, "without GOMEMLIMIT,")]);
    }

    #[test]
    fn other_nodes_get_an_advice_or_nothing() {
        let other = LeanFacts { is_asked_for: false, passes_groups: Some(false), ..facts() };
        expect(&other, &[(Verdict::Ok, "256 MB")]);
        expect(&LeanFacts { memory_bytes: 8 << 30, ..other.clone() }, &[]);
        expect(&LeanFacts { passes_groups: Some(true), ..other }, &[(Verdict::Warning, "any pod can join")]);
    }

    #[test]
    fn patterns_of_the_default_runtime_count() {
        let of = |patterns: &str| {
            let runc = format!(r#"{{"runc":{{"PodAnnotations":{patterns}}}}}"#);
            passes_groups(&format!(r#"{{"containerd":{{"defaultRuntimeName":"runc","runtimes":{runc}}}}}"#))
        };
        assert_eq!(of(r#"["io.containerd.runc.v2.group"]"#), Some(true));
        assert_eq!(of(r#"["x", "io.containerd.*"]"#), Some(true));
        assert_eq!(of(r#"["io.containerd.runc"]"#), Some(false));
        assert_eq!(of("null"), Some(false));
        assert_eq!(passes_groups("{}"), None);
    }
}
