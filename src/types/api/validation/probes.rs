//! Validates probes and lifecycle hooks. Pure.

use super::faults::Faults;
use super::names::HEADER_NAME;
use super::ports;
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{Container, ExecAction, HttpGetAction, LifecycleAction, LifecycleHandler, Probe, ProbeHandler};

pub(super) fn check(container: &Container, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    if let Some(probe) = &container.liveness_probe {
        let path = path.key("livenessProbe");
        check_probe(probe, &path, faults);
        check_success_threshold(probe, &path, faults);
    }
    if let Some(probe) = &container.readiness_probe {
        let path = path.key("readinessProbe");
        check_probe(probe, &path, faults);
        if probe.termination_grace_period_seconds.is_some() {
            faults.forbidden(&path.key("terminationGracePeriodSeconds"), "for a readiness probe");
        }
    }
    if let Some(probe) = &container.startup_probe {
        let path = path.key("startupProbe");
        check_probe(probe, &path, faults);
        check_success_threshold(probe, &path, faults);
    }
    if let Some(lifecycle) = &container.lifecycle {
        let path = path.key("lifecycle");
        for (field, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
            if let Some(hook) = hook {
                check_hook(hook, scope, &path.key(field), faults);
            }
        }
    }
}

fn check_probe(probe: &Probe, path: &Path<'_>, faults: &mut Faults) {
    match &probe.handler {
        ProbeHandler::Exec(command) => check_exec(command, &path.key("exec"), faults),
        ProbeHandler::Grpc(request) => ports::check_number(request.port, &path.key("grpc").key("port"), faults),
        ProbeHandler::HttpGet(request) => check_http_get(request, &path.key("httpGet"), faults),
        ProbeHandler::TcpSocket(socket) => {
            ports::check_reference(&socket.port, &path.key("tcpSocket").key("port"), faults);
        }
    }
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, number) in numbers.into_iter().filter(|(_, number)| *number < 0) {
        faults.out_of_range(&path.key(field), number, "must not be negative");
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        faults.out_of_range(&path.key("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

/// Liveness and startup probes must have a success threshold of 1.
fn check_success_threshold(probe: &Probe, path: &Path<'_>, faults: &mut Faults) {
    // A negative threshold is reported elsewhere.
    if probe.success_threshold != 1 && probe.success_threshold >= 0 {
        faults.out_of_range(&path.key("successThreshold"), probe.success_threshold, "must be 1");
    }
}

fn check_hook(hook: &LifecycleHandler, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    match &hook.action {
        LifecycleAction::Exec(command) => check_exec(command, &path.key("exec"), faults),
        LifecycleAction::HttpGet(request) => check_http_get(request, &path.key("httpGet"), faults),
        LifecycleAction::Sleep(sleep) => {
            let most = scope.spec.termination_grace_period_seconds;
            if let Some(most) = most.filter(|most| !(0..=*most).contains(&sleep.seconds)) {
                let wanted = format_args!("must be from 0 to terminationGracePeriodSeconds ({most})");
                faults.out_of_range(&path.key("sleep").key("seconds"), sleep.seconds, wanted);
            }
        }
        LifecycleAction::TcpSocket(socket) => {
            ports::check_reference(&socket.port, &path.key("tcpSocket").key("port"), faults);
        }
    }
}

fn check_exec(action: &ExecAction, path: &Path<'_>, faults: &mut Faults) {
    if action.command.is_empty() {
        faults.required(&path.key("command"));
    }
}

fn check_http_get(request: &HttpGetAction, path: &Path<'_>, faults: &mut Faults) {
    if request.path.is_empty() {
        faults.required(&path.key("path"));
    }
    ports::check_reference(&request.port, &path.key("port"), faults);
    for (index, header) in request.http_headers.iter().enumerate() {
        let headers = path.key("httpHeaders");
        faults.required_name(&headers.index(index).key("name"), &header.name, &HEADER_NAME);
    }
}
