//! Resolves the port that a probe or a hook names: a number, or the name of a container port. Pure.

use std::fmt;

use super::container::Container;
use super::int_or_string::IntOrString;

/// A port reference that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortError {
    NoSuchPort(String),
    OutOfRange(i64),
}

impl Container {
    /// The number of `reference`. A string that names no port of the container may be a number in quotes.
    pub fn port(&self, reference: &IntOrString) -> Result<u16, PortError> {
        let number = match reference {
            IntOrString::Int(number) => i64::from(*number),
            IntOrString::String(name) => match self.ports.iter().find(|port| port.name == *name) {
                Some(port) => i64::from(port.container_port),
                None => name.parse().map_err(|_| PortError::NoSuchPort(name.clone()))?,
            },
        };
        u16::try_from(number).ok().filter(|port| *port > 0).ok_or(PortError::OutOfRange(number))
    }
}

/// The upstream kubelet's messages, which users know from events.
impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPort(name) => write!(f, "strconv.Atoi: parsing {name:?}: invalid syntax"),
            Self::OutOfRange(number) => write!(f, "invalid port number: {number}"),
        }
    }
}

impl std::error::Error for PortError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::ContainerPort;

    #[test]
    fn port_name_precedes_a_number_in_quotes() {
        let port = |name: &str, container_port| ContainerPort {
            name: name.to_owned(),
            container_port,
            ..ContainerPort::default()
        };
        let container = Container { ports: vec![port("web", 80), port("81", 82)], ..Container::default() };
        let name = |name: &str| container.port(&IntOrString::String(name.to_owned()));
        assert_eq!(container.port(&IntOrString::Int(8080)), Ok(8080));
        assert_eq!(name("web"), Ok(80));
        assert_eq!(name("81"), Ok(82));
        assert_eq!(name("83"), Ok(83));
        assert_eq!(name("http"), Err(PortError::NoSuchPort("http".to_owned())));
        for wrong in [0, -1, 65_536] {
            assert_eq!(container.port(&IntOrString::Int(wrong)), Err(PortError::OutOfRange(i64::from(wrong))));
        }
    }
}
