//! Validates the container lists and the fields common to all containers. Pure.

use super::faults::Faults;
use super::names::DNS_LABEL;
use super::ports::HostPorts;
use super::scope::Scope;
use super::{environment, mounts, ports, probes, resources, security};
use crate::types::api::Container;
use crate::types::api::decode::Path;
use crate::types::sorted::Seen;

/// The API server's bounds on restart rules, and on exit codes per rule.
const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

pub(super) fn check<'a>(scope: &Scope<'a>, path: &Path<'_>, faults: &mut Faults) {
    let spec = scope.spec;
    let mut names = Seen::default();
    let mut host_ports = HostPorts::default();
    let list = path.key("containers");
    if spec.containers.is_empty() {
        faults.required(&list);
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let path = list.index(index);
        check_one(container, &mut names, scope, &path, faults);
        host_ports.take(container, &path, faults);
        if spec.host_network {
            ports::check_host_network(&container.ports, &path.key("ports"), faults);
        }
        probes::check(container, scope, &path, faults);
    }
    let list = path.key("initContainers");
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path = list.index(index);
        check_one(container, &mut names, scope, &path, faults);
        // Init containers run one after the other, so they may share ports.
        HostPorts::default().take(container, &path, faults);
        if container.is_sidecar() {
            probes::check(container, scope, &path, faults);
        } else {
            refuse_probes(container, &path, faults);
        }
    }
}

fn check_one<'a>(
    container: &'a Container,
    names: &mut Seen<&'a str>,
    scope: &Scope<'a>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    faults.required_name(&path.key("name"), &container.name, &DNS_LABEL);
    if !container.name.is_empty() && !names.insert(&container.name) {
        faults.duplicate(&path.key("name"), &container.name);
    }
    if container.image.is_empty() {
        faults.required(&path.key("image"));
    } else if container.image.trim() != container.image {
        faults.invalid(&path.key("image"), &container.image, "must not begin or end with white space");
    }
    check_restart_policy(container, path, faults);
    ports::check(&container.ports, &path.key("ports"), faults);
    environment::check(container, scope, path, faults);
    mounts::check(container, scope, path, faults);
    resources::check_container(container, scope, path, faults);
    if let Some(context) = &container.security_context {
        security::check_container(context, scope, &path.key("securityContext"), faults);
    }
}

fn check_restart_policy(container: &Container, path: &Path<'_>, faults: &mut Faults) {
    let rules = &container.restart_policy_rules;
    if !rules.is_empty() && container.restart_policy.is_none() {
        faults.required_as(&path.key("restartPolicy"), "restartPolicyRules are the exceptions to it");
    }
    let path = path.key("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        faults.other(&path, format_args!("{} rules: must be at most {MAX_RESTART_RULES}", rules.len()));
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let path = path.key("exitCodes");
        match &rule.exit_codes {
            None => faults.required(&path),
            Some(codes) if codes.values.len() > MAX_EXIT_CODES => {
                let count = codes.values.len();
                faults.other(&path.key("values"), format_args!("{count} exit codes: must be at most {MAX_EXIT_CODES}"));
            }
            Some(_) => {}
        }
    }
}

/// Init containers that run to completion have no probes and no hooks.
fn refuse_probes(container: &Container, path: &Path<'_>, faults: &mut Faults) {
    let fields = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    for (field, _) in fields.into_iter().filter(|(_, set)| *set) {
        faults.forbidden(&path.key(field), "for an init container without restartPolicy \"Always\"");
    }
}
