//! Service environment variables: for the services of the namespace, and always for the API server. Pure.
//!
//! `FromServices` in pkg/kubelet/envvars/envvars.go.

use std::net::IpAddr;

use super::config_error::ConfigError;
use crate::state::objects::Service;
use crate::types::sorted::SortedMap;

/// Names and values, sorted by service name. An error if there are more than `most`, of which not all are made.
pub(super) fn service_variables<'a>(
    services: impl Iterator<Item = &'a Service>,
    namespace: &str,
    links: bool,
    most: usize,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut chosen: SortedMap<&str, &Service> = SortedMap::new();
    for service in services {
        let name = service.name.as_str();
        if service.namespace == "default" && name == API_SERVER {
            chosen.entry(name).or_insert(service);
        } else if links && service.namespace == namespace {
            chosen.insert(name, service);
        }
    }
    let mut variables = Vec::new();
    for service in chosen.into_values() {
        if let Some(ip) = service.cluster_ip {
            // Each port has four variables at least.
            if variables.len() + 4 * service.ports.len() > most {
                return Err(ConfigError::TooManyVariables { most });
            }
            add(service, ip, &mut variables);
        }
    }
    Ok(variables)
}

fn add(service: &Service, ip: IpAddr, variables: &mut Vec<(String, String)>) {
    let Some(first) = service.ports.first() else { return };
    let prefix = variable_name(&service.name);
    let port = format!("{prefix}_SERVICE_PORT");
    variables.push((format!("{prefix}_SERVICE_HOST"), ip.to_string()));
    variables.push((port.clone(), first.port.to_string()));
    for named in service.ports.iter().filter(|port| !port.name.is_empty()) {
        variables.push((format!("{port}_{}", variable_name(&named.name)), named.port.to_string()));
    }
    let host = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    for (index, service_port) in service.ports.iter().enumerate() {
        let protocol = service_port.protocol.as_str().to_lowercase();
        let url = format!("{protocol}://{host}:{}", service_port.port);
        if index == 0 {
            variables.push((format!("{prefix}_PORT"), url.clone()));
        }
        let prefix = format!("{prefix}_PORT_{}_{}", service_port.port, service_port.protocol);
        variables.push((format!("{prefix}_PROTO"), protocol));
        variables.push((format!("{prefix}_PORT"), service_port.port.to_string()));
        variables.push((format!("{prefix}_ADDR"), ip.to_string()));
        variables.push((prefix, url));
    }
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

const API_SERVER: &str = "kubernetes";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::objects::ServicePort;
    use crate::types::api::Protocol;

    fn service(namespace: &str, name: &str, ip: &str, ports: &[(&str, i32, Protocol)]) -> Service {
        let port = |(name, port, protocol): &(&str, i32, Protocol)| ServicePort {
            name: (*name).to_owned(),
            port: *port,
            protocol: *protocol,
        };
        Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster_ip: ip.parse().ok(),
            ports: ports.iter().map(port).collect(),
        }
    }

    fn kubernetes() -> Service {
        service("default", "kubernetes", "10.96.0.1", &[("https", 443, Protocol::Tcp)])
    }

    #[test]
    fn api_server_variables_match_the_recorded_ones() {
        let mut found = service_variables([kubernetes()].iter(), "golden", false, 100).unwrap();
        found.sort();
        let mut expected = [
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
            ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
            ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
            ("KUBERNETES_PORT_443_TCP_PORT", "443"),
            ("KUBERNETES_PORT_443_TCP_ADDR", "10.96.0.1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn services_of_the_namespace_have_variables_if_enabled() {
        let services = [
            service("a", "my-db", "fd00::1", &[("", 1, Protocol::Udp), ("a-b", 2, Protocol::Tcp)]),
            service("a", "headless", "None", &[("", 1, Protocol::Tcp)]),
            service("b", "other", "10.0.0.1", &[("", 1, Protocol::Tcp)]),
        ];
        assert_eq!(service_variables(services.iter(), "a", false, 100).unwrap(), []);
        let names: Vec<String> =
            service_variables(services.iter(), "a", true, 100).unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| name.starts_with("MY_DB_")), "{names:?}");
        let found: SortedMap<String, String> =
            service_variables(services.iter(), "a", true, 100).unwrap().into_iter().collect();
        assert_eq!(found["MY_DB_SERVICE_HOST"], "fd00::1");
        assert_eq!(found["MY_DB_SERVICE_PORT_A_B"], "2");
        assert_eq!(found["MY_DB_PORT"], "udp://[fd00::1]:1");
        assert_eq!(found["MY_DB_PORT_2_TCP"], "tcp://[fd00::1]:2");
        assert_eq!(found.len(), 3 + 1 + 2 * 4);
    }

    #[test]
    fn kubernetes_service_is_only_from_the_default_namespace() {
        let own = service("a", "kubernetes", "10.0.0.9", &[("", 1, Protocol::Tcp)]);
        let host = |services: &[Service]| service_variables(services.iter(), "a", true, 100).unwrap()[0].1.clone();
        assert_eq!(host(std::slice::from_ref(&own)), "10.0.0.9");
        assert_eq!(host(&[own, kubernetes()]), "10.0.0.9");
    }

    #[test]
    fn more_variables_than_a_container_may_have_are_not_made() {
        let ports: Vec<(&str, i32, Protocol)> = (1..=25).map(|port| ("", port, Protocol::Tcp)).collect();
        let services = [service("a", "x", "10.0.0.1", &ports)];
        let count = |most| service_variables(services.iter(), "a", true, most).map(|found| found.len());
        assert_eq!(count(103), Ok(103));
        assert_eq!(count(99), Err(ConfigError::TooManyVariables { most: 99 }));
    }
}
