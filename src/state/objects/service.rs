//! Services as environment variables describe them. Pure.

use std::net::IpAddr;

use serde_json::Value;

use crate::types::api::Protocol;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// A headless service has no variables.
    pub(crate) cluster_ip: Option<IpAddr>,
    pub(crate) ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// May be empty if the service has only one port.
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: Protocol,
}

impl Service {
    /// Reads a `v1.Service`; `None` if it is malformed.
    pub(crate) fn read(object: &Value) -> Option<Self> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let ports = object.pointer("/spec/ports").and_then(Value::as_array);
        Some(Self {
            namespace: text("/metadata/namespace")?.to_owned(),
            name: text("/metadata/name")?.to_owned(),
            // Headless services have "None", which is not an address.
            cluster_ip: text("/spec/clusterIP").and_then(|ip| ip.parse().ok()),
            ports: ports.into_iter().flatten().filter_map(ServicePort::read).collect(),
        })
    }
}

impl ServicePort {
    fn read(port: &Value) -> Option<Self> {
        let text = |key: &str| port.get(key).and_then(Value::as_str).unwrap_or_default();
        Some(Self {
            name: text("name").to_owned(),
            port: i32::try_from(port.get("port")?.as_i64()?).ok()?,
            protocol: Protocol::from_word(text("protocol")).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headless_service_has_no_address() {
        let service = |ip: &str| {
            let ports = json!([{"port": 53, "protocol": "UDP"}, {"name": "web", "port": 80}, {"port": "x"}]);
            let metadata = json!({"namespace": "ns", "name": "s"});
            Service::read(&json!({"metadata": metadata, "spec": {"clusterIP": ip, "ports": ports}})).unwrap()
        };
        let read = service("10.0.0.1");
        assert_eq!(read.cluster_ip, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(
            (read.ports.len(), read.ports[0].protocol, read.ports[1].protocol),
            (2, Protocol::Udp, Protocol::Tcp)
        );
        assert_eq!(service("None").cluster_ip, None);
        assert_eq!(Service::read(&json!({})), None);
    }
}
