//! Names of pods and workloads on the command line: `web`, `web-node1`, `default/web`, `deployment/web`. Pure.

use super::workload_words::kind_of_word;
use crate::control::pod_sources::static_pod::owning_workload;
use crate::types::api::{OwnerReference, Pod};

#[derive(Clone, Copy, Debug)]
pub(super) struct PodName<'a> {
    namespace: Option<&'a str>,
    /// The kind of the workload that is meant: `deployment/web`.
    kind: Option<&'static str>,
    name: &'a str,
}

impl<'a> PodName<'a> {
    /// `namespace` is the option's value, which takes precedence over one in the name.
    pub(super) fn new(name: &'a str, namespace: Option<&'a str>) -> Self {
        let name = name.strip_prefix("pod/").unwrap_or(name);
        match name.split_once('/') {
            Some((word, name)) if kind_of_word(word).is_some() => {
                Self { kind: kind_of_word(word), ..Self::new(name, namespace) }
            }
            Some((within, name)) => Self { namespace: namespace.or(Some(within)), kind: None, name },
            None => Self { namespace, kind: None, name },
        }
    }

    pub(super) fn kind(&self) -> Option<&'static str> {
        self.kind
    }

    /// Whether the pod belongs to the workload of this name; with an empty name, to any of the kind.
    pub(super) fn is_owner_of(&self, pod: &Pod) -> bool {
        let Some(owner) = owning_workload(pod) else { return false };
        // The pods of a CronJob belong to its Jobs.
        let (kind, name) = match (self.kind, of_cron_job(owner)) {
            (Some("CronJob"), Some(name)) => ("CronJob", name),
            _ => (&*owner.kind, &*owner.name),
        };
        self.namespace.is_none_or(|wanted| wanted == pod.metadata.namespace)
            && (name == self.name || self.name.is_empty())
            && self.kind.is_none_or(|wanted| wanted == kind)
    }

    /// The namespace, if given, and the name.
    pub(super) fn parts(&self) -> (Option<&'a str>, &'a str) {
        (self.namespace, self.name)
    }

    /// A pod from a manifest on `node` also matches by the name in its manifest.
    pub(super) fn is(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.kind.is_none()
            && self.namespace.is_none_or(|wanted| wanted == namespace)
            && names(name, node).any(|pod_name| pod_name == self.name)
    }
}

/// The CronJob whose Job this may be: `NAME-MINUTES`.
fn of_cron_job(job: &OwnerReference) -> Option<&str> {
    let (name, minutes) = job.name.rsplit_once('-').filter(|_| job.kind == "Job")?;
    minutes.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}

/// The names that match a pod: its own, and if it is from a manifest on `node` the name in the manifest.
pub(super) fn names<'a>(name: &'a str, node: &str) -> impl Iterator<Item = &'a str> {
    let in_manifest = name.strip_suffix(node).and_then(|name| name.strip_suffix('-'));
    in_manifest.into_iter().chain([name])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_sources::static_pod::testing::pods_of;

    const DEPLOYMENT: &str = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: \
                              {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}";

    #[test]
    fn pods_of_a_cron_job_are_those_of_its_jobs() {
        let job = |name: &str| {
            pods_of(&format!(
                "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{template: {{spec: \
                 {{restartPolicy: Never, containers: [{{name: c, image: i}}]}}}}}}}}"
            ))
            .remove(0)
        };
        let owns = |name: &str, of: &str| PodName::new(name, None).is_owner_of(&job(of));
        assert!(owns("cronjob/backup", "backup-29000000") && owns("cj/", "backup-29000000"));
        assert!(owns("job/backup-29000000", "backup-29000000"));
        assert!(!owns("cronjob/backup", "backup") && !owns("cronjob/backup", "backup-front-29000000"));
        assert!(!owns("job/backup", "backup-29000000"));
    }

    #[test]
    fn workload_is_named_with_or_without_its_kind() {
        let pod = &pods_of(DEPLOYMENT)[1];
        let owns = |name: &str| PodName::new(name, None).is_owner_of(pod);
        assert_eq!(
            ["web", "deploy/web", "Deployment/default/web", "deployments.apps/", "default/web"].map(owns),
            [true; 5]
        );
        assert_eq!(["web-1", "ds/web", "deploy/x", "other/web", "pod/x"].map(owns), [false; 5]);
        let is = |name: &str| PodName::new(name, None).is("default", "web-1-node", "node");
        assert_eq!(["web-1", "pod/web-1", "deploy/web-1", "web"].map(is), [true, true, false, false]);
    }
}
