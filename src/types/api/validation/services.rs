//! Validates Services of manifests. Pure.

use super::faults::Faults;
use super::metadata;
use super::names::{DNS_LABEL, LABEL_KEY, LABEL_VALUE};
use crate::types::api::decode::Path;
use crate::types::api::{Service, ServiceType};

pub(super) fn check_service(service: &Service, faults: &mut Faults) {
    let root = Path::Root;
    let metadata_path = root.key("metadata");
    metadata::check(&service.metadata, &metadata_path, faults);
    if !service.metadata.name.is_empty() {
        faults.name(&metadata_path.key("name"), &service.metadata.name, &DNS_LABEL);
    }
    let path = root.key("spec");
    let selector = path.key("selector");
    for (key, value) in service.spec.selector.iter() {
        faults.name(&selector, key, &LABEL_KEY);
        faults.name(&selector.key(key), value, &LABEL_VALUE);
    }
    if service.spec.service_type == Some(ServiceType::ExternalName) {
        faults
            .other(&path.key("type"), "ExternalName needs a DNS server: on one node, names lead to addresses of pods");
    } else if service.spec.selector.is_empty() {
        faults.required_as(&selector, "the labels of the pods that the name leads to");
    }
    let ports = path.key("ports");
    for (index, port) in service.spec.ports.iter().enumerate() {
        if !(1..=65535).contains(&port.port) {
            faults.out_of_range(&ports.index(index).key("port"), port.port, "must be between 1 and 65535");
        }
    }
}
