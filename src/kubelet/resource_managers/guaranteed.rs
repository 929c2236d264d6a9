//! Guaranteed pods for tests.

use crate::types::api::{CPU, Container, MEMORY, Pod};

pub(super) fn container(name: &str, cpu: &str, memory: &str) -> Container {
    let mut container = Container { name: name.to_owned(), ..Container::default() };
    for list in [&mut container.resources.requests, &mut container.resources.limits] {
        list.insert(CPU, cpu.parse().unwrap());
        list.insert(MEMORY, memory.parse().unwrap());
    }
    container
}

pub(super) fn pod(uid: &str, init: Vec<Container>, containers: Vec<Container>) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.spec.init_containers = init;
    pod.spec.containers = containers;
    pod
}
