//! The ports of containers, and which of them are ports of the host. Pure.

use super::faults::Faults;
use super::names::PORT_NAME;
use crate::types::api::decode::Path;
use crate::types::api::{Container, ContainerPort, IntOrString};
use crate::types::sorted::SortedSet;

/// The ports of one container.
pub(super) fn check(ports: &[ContainerPort], path: &Path<'_>, faults: &mut Faults) {
    let mut names = SortedSet::new();
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

/// The number or the name of a port of the container.
pub(super) fn check_reference(port: &IntOrString, path: &Path<'_>, faults: &mut Faults) {
    match port {
        IntOrString::Int(number) => check_number(*number, path, faults),
        IntOrString::String(name) => faults.name(path, name, &PORT_NAME),
    }
}

pub(super) fn check_number(number: i32, path: &Path<'_>, faults: &mut Faults) {
    if !(1..=65535).contains(&number) {
        faults.out_of_range(path, number, "must be from 1 to 65535");
    }
}

/// The ports of the host that containers which run at the same time ask for.
#[derive(Debug, Default)]
pub(super) struct HostPorts<'a>(SortedSet<(i32, &'static str, &'a str)>);

impl<'a> HostPorts<'a> {
    /// Tells which ports of `container` another one has already.
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

/// On the host's network a port of a container is a port of the host.
pub(super) fn check_host_network(ports: &[ContainerPort], path: &Path<'_>, faults: &mut Faults) {
    for (index, port) in ports.iter().enumerate().filter(|(_, port)| port.host_port != port.container_port) {
        let wanted = "must be the containerPort when hostNetwork is true";
        faults.out_of_range(&path.index(index).key("hostPort"), port.host_port, wanted);
    }
}
