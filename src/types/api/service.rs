//! Services of manifests. Pure.

use super::int_or_string::IntOrString;
use super::map::Map;
use super::metadata::{Dropped, ObjectMeta};
use super::pod::V1;

object! {
    /// A `v1.Service`, as far as it has a meaning on one node.
    pub struct Service {
        @always {
            api_version: V1,
            kind: ServiceKind,
            metadata: ObjectMeta,
        }
        spec: ServiceSpec,
        status: Dropped,
    }
}

words! {
    #[derive(Default)]
    pub enum ServiceKind {
        #[default]
        Service = "Service",
    }
}

object! {
    pub struct ServiceSpec {
        selector: Map<String>,
        ports: Vec<ServicePort>,
        publish_not_ready_addresses: bool,
        cluster_ip: String = "clusterIP",
        service_type: Option<ServiceType> = "type",
    }
}

object! {
    pub struct ServicePort {
        @always {
            port: i32,
        }
        name: String,
        protocol: String,
        target_port: Option<IntOrString>,
    }
}

words! {
    pub enum ServiceType {
        ClusterIp = "ClusterIP",
        ExternalName = "ExternalName",
        LoadBalancer = "LoadBalancer",
        NodePort = "NodePort",
    }
}

impl Service {
    /// Fields that need more than names on one node, each with what to do instead.
    pub fn without_effect(&self) -> Vec<(String, String)> {
        let mut ignored_fields = Vec::new();
        if !matches!(self.spec.cluster_ip.as_str(), "" | "None") {
            ignored_fields
                .push(("spec.clusterIP".to_owned(), "the name leads to the addresses of the pods".to_owned()));
        }
        if let Some(of_cluster @ (ServiceType::LoadBalancer | ServiceType::NodePort)) = self.spec.service_type {
            let why = format!("{} opens no port here: use hostPort in the pod", of_cluster.as_str());
            ignored_fields.push(("spec.type".to_owned(), why));
        }
        for (index, port) in self.spec.ports.iter().enumerate() {
            let needed = match &port.target_port {
                None | Some(IntOrString::Int(0)) => continue,
                Some(IntOrString::Int(target)) if *target == port.port => continue,
                Some(IntOrString::Int(target)) => format!("targetPort {target}"),
                Some(IntOrString::String(name)) => format!("the port that the pod calls {name}"),
            };
            let why = format!("clients reach the pods themselves, at {needed}, not at {}", port.port);
            ignored_fields.push((format!("spec.ports[{index}].port"), why));
        }
        ignored_fields
    }
}

/// Fields of a Service's spec that only a cluster can carry out.
pub const CLUSTER_SERVICE_FIELDS: [&str; 14] = [
    "allocateLoadBalancerNodePorts",
    "clusterIPs",
    "externalIPs",
    "externalName",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
    "sessionAffinity",
    "trafficDistribution",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[test]
    fn what_needs_a_cluster_is_named() {
        let of = |spec: serde_json::Value| {
            let service: Service = decode(json!({"apiVersion": "v1", "kind": "Service", "spec": spec})).unwrap().value;
            service.without_effect().into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(of(json!({"clusterIP": "None", "ports": [{"port": 80}, {"port": 80, "targetPort": 80}]})), [""; 0]);
        assert_eq!(
            of(json!({"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [{"port": 80, "targetPort": 8080}]})),
            ["spec.clusterIP", "spec.type", "spec.ports[0].port"]
        );
        assert_eq!(
            of(json!({"type": "ClusterIP", "ports": [{"port": 80, "targetPort": "web"}]})),
            ["spec.ports[0].port"]
        );
    }
}
