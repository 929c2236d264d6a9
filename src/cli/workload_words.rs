//! The words of other tools for kinds of workloads. Pure.

/// The kind that is meant by `deploy`, `deployments.apps` and such.
pub(super) fn kind_of_word(word: &str) -> Option<&'static str> {
    let word = word.strip_suffix(".apps").or_else(|| word.strip_suffix(".batch")).unwrap_or(word);
    Some(match word.to_ascii_lowercase().as_str() {
        "cronjob" | "cronjobs" | "cj" => "CronJob",
        "daemonset" | "daemonsets" | "ds" => "DaemonSet",
        "deployment" | "deployments" | "deploy" => "Deployment",
        "job" | "jobs" => "Job",
        "statefulset" | "statefulsets" | "sts" => "StatefulSet",
        _ => return None,
    })
}
