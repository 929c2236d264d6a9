//! The arguments of `coracle port-forward`: port pairs and local addresses. Pure.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::types::api::Pod;

/// `8080:80`, `80`, `:80`, `8080:http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortPair {
    /// 0: any free port; `None`: the same number as the pod's port.
    local: Option<u16>,
    remote: String,
}

impl FromStr for PortPair {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let expected = "expected [LOCAL:]REMOTE, as 8080:80";
        let (local, remote) = word.split_once(':').map_or((None, word), |(local, remote)| (Some(local), remote));
        let local = match local {
            Some("") => Some(0),
            Some(local) => Some(local.parse().map_err(|_| expected)?),
            None => None,
        };
        let is_number = remote.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = !is_number && remote.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_port = remote.parse::<u16>().is_ok_and(|port| port > 0) && is_number;
        match is_port || (is_name && !remote.starts_with('-')) {
            true => Ok(Self { local, remote: remote.to_owned() }),
            false => Err(expected),
        }
    }
}

impl PortPair {
    /// The local and the remote port number. A name is looked up among the ports of the pod's containers.
    pub(super) fn numbers(&self, pod: &Pod) -> Result<(u16, u16), String> {
        let ports = || pod.spec.all_containers().flat_map(|container| &container.ports);
        let named =
            || ports().find(|port| port.name == self.remote).and_then(|port| port.container_port.try_into().ok());
        let remote: Option<u16> = self.remote.parse().ok().or_else(named);
        let Some(remote) = remote else {
            let names: Vec<&str> = ports().map(|port| &*port.name).filter(|name| !name.is_empty()).collect();
            let names = if names.is_empty() { "none has a name".to_owned() } else { names.join(", ") };
            return Err(format!("pod {} has no port {}: {names}", pod.metadata.name, self.remote));
        };
        Ok((self.local.unwrap_or(remote), remote))
    }
}

/// Local addresses to listen on, separated by commas: `127.0.0.1,::1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses(pub(super) Vec<IpAddr>);

impl Addresses {
    /// The loopback address only.
    pub(super) fn local() -> Self {
        Self(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }
}

impl FromStr for Addresses {
    type Err = &'static str;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        let local = |word: &str| if word == "localhost" { "127.0.0.1".parse() } else { word.parse() };
        let addresses: Result<_, _> = words.split(',').map(local).collect();
        addresses.map(Self).map_err(|_| "expected addresses of this machine, as 127.0.0.1,::1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, ContainerPort};

    #[test]
    fn ports_are_parsed_like_kubectls() {
        let mut pod = Pod::default();
        let port = ContainerPort { name: "http".to_owned(), container_port: 8000, ..ContainerPort::default() };
        pod.metadata.name = "web".to_owned();
        pod.spec.containers = vec![Container { ports: vec![port], ..Container::default() }];
        let numbers = |word: &str| word.parse::<PortPair>().map_err(str::to_owned)?.numbers(&pod);
        for (word, pair) in
            [("80", (80, 80)), ("8080:80", (8080, 80)), (":80", (0, 80)), ("0:80", (0, 80)), ("1:http", (1, 8000))]
        {
            assert_eq!(numbers(word), Ok(pair), "{word}");
        }
        assert_eq!(numbers("https"), Err("pod web has no port https: http".to_owned()));
        for wrong in ["", ":", "0", "65536", "80:", "x:80", "1:2:3", "-1", "+1", "99999999999"] {
            assert_eq!(numbers(wrong), Err("expected [LOCAL:]REMOTE, as 8080:80".to_owned()), "{wrong:?}");
        }
    }

    #[test]
    fn addresses_must_be_ip_addresses_or_localhost() {
        let addresses = |words: &str| words.parse::<Addresses>().map(|Addresses(all)| all.len());
        assert_eq!(addresses("localhost"), Ok(1));
        assert_eq!(addresses("127.0.0.1,::1"), Ok(2));
        assert!(addresses("example.org").is_err() && addresses("").is_err() && addresses("127.0.0.1:80").is_err());
    }
}
