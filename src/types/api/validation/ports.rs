//! Validates container ports and host ports. Pure.

use super::faults::Faults;
use super::names::PORT_NAME;
use crate::types::api::decode::Path;
use crate::types::api::{Container, ContainerPort, IntOrString};
use crate::types::sorted::Seen;

/// The ports of one container.
pub(super) fn check(ports: &[ContainerPort], path: &Path<'_>, faults: &mut Faults) {
    let mut names = Seen::default();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        faults.optional_name(&path.key("name"), &port.name, &PORT_NAME);
        if !port.name.is_empty() && !names.insert(port.name.as_str()) {
            faults.duplicate(&path.key("name"), &port.name);
        }
        match port.container_port {
            0 => faults.required(&path.key("containerPort")),
            number => check_number(number, &path.key("containerPort"), faults),
        }
        if port.host_port != 0 {
            check_number(port.host_port, &path.key("hostPort"), faults);
        }
    }
}

/// Checks a reference to a container port, by number or by name.
pub(super) fn check_reference(port: &IntOrString, path: &Path<'_>, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) => check_number(*number, path, faults),
        IntOrString::String(name) if name.parse::<i32>().is_ok() => {
            faults.invalid(path, name, "must be a number or the name of a port: remove the quotes");
        }
        IntOrString::String(name) => faults.name(path, name, &PORT_NAME),
    }
}

pub(super) fn check_number(number: i32, path: &Path<'_>, faults: &mut Faults) {
    if !(1..=65535).contains(&number) {
        faults.out_of_range(path, number, "must be from 1 to 65535");
    }
}

/// The host ports of containers that run at the same time.
#[derive(Debug, Default)]
pub(super) struct HostPorts<'a>(Seen<(i32, &'static str, &'a str)>);

impl<'a> HostPorts<'a> {
    /// Adds the host ports of `container`, and reports those that are already taken.
    pub(super) fn take(&mut self, container: &'a Container, path: &Path<'_>, faults: &mut Faults) {
        for (index, port) in container.ports.iter().enumerate().filter(|(_, port)| port.host_port != 0) {
            let protocol = port.protocol.as_str();
            if !self.0.insert((port.host_port, protocol, &port.host_ip)) {
                let taken = format!("{protocol}/{}/{}", port.host_ip, port.host_port);
                let ports = path.key("ports");
                faults.duplicate(&ports.index(index).key("hostPort"), &taken);
            }
        }
    }
}

/// In the host's network namespace, `hostPort` must equal `containerPort`.
pub(super) fn check_host_network(ports: &[ContainerPort], path: &Path<'_>, faults: &mut Faults) {
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.host_port != port.container_port) {
        let wanted = "must be the containerPort when hostNetwork is true";
        faults.out_of_range(&path.index(index).key("hostPort"), port.host_port, wanted);
    }
}
