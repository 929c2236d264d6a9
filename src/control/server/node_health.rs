//! What is wrong with the node: one list for the command line, the status page and the exit status. Pure.

use super::node_problems::{NodeHealth, NodeProblem, Severity};
use super::node_status::{CertificateState, NodeStatus};
use crate::kubelet::status::PodHealth;
use crate::types::sorted::SortOnce;

/// A pod's name, running uid and health.
pub(crate) struct PodVerdict {
    /// Such as `default/web`.
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) health: PodHealth,
}

impl NodeStatus {
    /// Sets health, problems and pod counts from the other fields and the pods.
    pub(crate) fn judge(&mut self, pods: Vec<PodVerdict>) {
        let mut problems = Problems::default();
        problems.of_agent(self);
        for PodVerdict { pod, uid, health } in pods {
            self.pod_counts.add(&health);
            if let PodHealth::Failing(problem) = health {
                problems.0.push(NodeProblem::of_pod(&pod, uid, problem));
            }
        }
        problems.of_wishes(self);
        problems.of_connections(self);
        let mut problems = problems.0;
        problems.sort_once_by_key(|problem| problem.severity);
        self.health = match problems.first().map(|worst| worst.severity) {
            None => NodeHealth::Ok,
            Some(Severity::Down) => NodeHealth::Down,
            Some(Severity::Failing | Severity::Warning) => NodeHealth::Degraded,
        };
        self.problems = problems;
    }
}

#[derive(Default)]
struct Problems(Vec<NodeProblem>);

impl Problems {
    fn add(&mut self, severity: Severity, subject: &str, cause: String, advice: &str) {
        let (subject, advice) = (subject.to_owned(), advice.to_owned());
        self.0.push(NodeProblem { severity, subject, cause, advice, ..NodeProblem::default() });
    }

    fn of_agent(&mut self, status: &NodeStatus) {
        use Severity::{Down, Failing, Warning};
        if !status.healthy {
            let cause = "the sync loop does not move: pods run on, changes are not applied".to_owned();
            self.add(Down, "agent", cause, "the watchdog restarts it; `coracle status` then shows the stall");
        }
        let runtime = &status.runtime;
        let why = |cause: &str| match runtime.message.is_empty() {
            true => format!("{cause} ({})", runtime.endpoint),
            false => format!("{cause} ({}): {}", runtime.endpoint, runtime.message),
        };
        if runtime.name.is_empty() {
            self.add(
                Down,
                "runtime",
                why("no answer yet"),
                "start the container runtime, or set --container-runtime-endpoint",
            );
        } else if !runtime.ready {
            self.add(Down, "runtime", why("not ready"), "see the log of the container runtime");
        } else if !runtime.network_ready {
            let advice =
                "install a CNI plugin and its configuration in /etc/cni/net.d; pods with hostNetwork run without";
            self.add(Failing, "network", why("the pod network is not ready"), advice);
        }
        for condition in status.conditions.iter().filter(|condition| condition.status == "True") {
            // The board's conditions also say what to do.
            let message = &*condition.message;
            let (cause, advice) = message.split_once("; ").unwrap_or((message, ""));
            self.0.push(NodeProblem {
                severity: if condition.is_pressure() { Failing } else { Warning },
                subject: condition.kind.clone(),
                cause: cause.to_owned(),
                advice: advice.to_owned(),
                since: condition.last_transition_time.clone(),
                ..NodeProblem::default()
            });
        }
        if let Some(device) = status.watchdog.device.as_ref().filter(|device| !device.armed) {
            let cause = format!("{} cannot be opened", device.path);
            self.add(Warning, "watchdog", cause, "stop the program that has it open");
        }
    }

    /// Manifests, archives and versions that the owner put there.
    fn of_wishes(&mut self, status: &NodeStatus) {
        for source in &status.sources {
            for error in &source.errors {
                self.add(Severity::Failing, "manifest", error.clone(), "");
            }
            if !source.ready {
                let advice = "see `Last errors` of coracle status";
                self.add(Severity::Warning, &source.name, "not read yet".to_owned(), advice);
            }
        }
        let archives = &status.image_archives;
        if !archives.message.is_empty() {
            let cause = format!("{} cannot be read: {}", archives.directory, archives.message);
            self.add(Severity::Failing, "image archives", cause, "");
        }
        for archive in archives.files.iter().filter(|archive| !archive.message.is_empty()) {
            let subject = format!("image archive {}", archive.file);
            self.add(Severity::Failing, &subject, archive.message.clone(), "");
        }
        for version in &status.versions {
            if ["rejected", "rolled back"].contains(&version.state.as_str()) {
                let cause = format!("version {}: {}", version.state, version.message);
                let advice = "mend the manifest; coracle describe shows what failed";
                self.add(Severity::Failing, &format!("pod {}", version.pod), cause, advice);
            }
        }
        for error in &status.leftovers {
            let advice = "a former pod left it; it is tried again. Check mounts, chattr -i and the file system";
            self.add(Severity::Warning, "leftover", error.clone(), advice);
        }
    }

    fn of_connections(&mut self, status: &NodeStatus) {
        // With sync windows the line is closed most of the time.
        let is_closed = status.sync.as_ref().is_some_and(|sync| !sync.open);
        if let Some(server) = status.api_server.as_ref().filter(|server| !server.connected && !is_closed) {
            let why = [&*server.server, &*server.message].map(str::trim).into_iter().filter(|text| !text.is_empty());
            let cause = ["not connected".to_owned()].into_iter().chain(why.map(str::to_owned)).collect::<Vec<_>>();
            self.add(
                Severity::Warning,
                "API server",
                cause.join(": "),
                "pods run on; check the network and the server",
            );
        }
        if let Some(fault) = &status.join {
            let advice = "the agent tries again: check the server and the token in the join file";
            self.add(Severity::Warning, "join", fault.clone(), advice);
        }
        for certificate in &status.certificates {
            let subject = format!("{} certificate", certificate.name);
            let advice = "pods run on; approve its request on the control plane (kubectl get csr); if there is none, coracle \
                          leave and coracle join with a new token";
            match certificate.state {
                CertificateState::Expired => {
                    let cause = format!("expired {}", certificate.not_after);
                    self.add(Severity::Failing, &subject, with_message(cause, &certificate.message), advice);
                }
                CertificateState::Missing if !certificate.message.is_empty() => {
                    self.add(Severity::Warning, &subject, certificate.message.clone(), advice);
                }
                CertificateState::Missing | CertificateState::Good | CertificateState::Due => {}
            }
        }
        if let Some(store) = status.offline.as_ref().filter(|store| !store.message.is_empty()) {
            self.add(
                Severity::Warning,
                "offline store",
                store.message.clone(),
                "check the disk and the directory's owner",
            );
        }
    }
}

fn with_message(cause: String, message: &str) -> String {
    if message.is_empty() { cause } else { format!("{cause}: {message}") }
}

#[cfg(test)]
mod tests;
