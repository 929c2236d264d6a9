//! `--name-template`: the node's name from facts of the board. Pure.

use std::fmt;
use std::str::FromStr;

use super::node_name::is_subdomain;

/// A valid template, such as `edge-{serial}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameTemplate {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Fact(BoardFact),
}

/// A fact of the board that a template may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoardFact {
    Hostname,
    /// Of this interface; `None`: of the default route's interface, or else the first physical one.
    Mac(Option<String>),
    Model,
    Serial,
}

/// The label `kubernetes.io/hostname` takes no longer value.
const MAX_NAME_BYTES: usize = 63;
const EXPECTED_FACTS: &str = "{serial}, {mac}, {mac:INTERFACE}, {model} or {hostname}";

impl FromStr for NameTemplate {
    type Err = String;

    /// The error is one line without the template.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let Some(after) = rest.strip_prefix('{') else {
                let end = rest.find('{').unwrap_or(rest.len());
                let (literal, others) = rest.split_at_checked(end).unwrap_or((rest, ""));
                pieces.push(Piece::Literal(literal_of(literal)?));
                rest = others;
                continue;
            };
            let (name, others) =
                after.split_once('}').ok_or_else(|| format!("expected }} after {rest:?}, found the end"))?;
            pieces.push(Piece::Fact(BoardFact::parse(name)?));
            rest = others;
        }
        if !pieces.iter().any(|piece| matches!(piece, Piece::Fact(_))) {
            // All boards of an image would be one node.
            return Err(format!("expected {EXPECTED_FACTS}, found {text:?}"));
        }
        Ok(Self { text: text.to_owned(), pieces })
    }
}

impl NameTemplate {
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The name; `read` returns a fact of this board. The error is one line that names what is missing.
    pub(crate) fn render(&self, mut read: impl FnMut(&BoardFact) -> Option<String>) -> Result<String, String> {
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => name.push_str(text),
                Piece::Fact(fact) => {
                    let value = read(fact).map(|value| cleaned(fact, &value)).filter(|value| !value.is_empty());
                    let value = value.ok_or_else(|| format!("{:?}: {fact}: {}", self.text, fact.missing()))?;
                    name.push_str(&value);
                }
            }
        }
        if name.len() > MAX_NAME_BYTES || !is_subdomain(&name) {
            return Err(format!(
                "{:?}: expected a DNS name of at most {MAX_NAME_BYTES} characters, which neither begins nor ends with \
                 '-' or '.', found {name:?}",
                self.text
            ));
        }
        Ok(name)
    }
}

impl BoardFact {
    fn parse(name: &str) -> Result<Self, String> {
        let unknown = || format!("expected {EXPECTED_FACTS}, found {{{name}}}");
        match name.split_once(':') {
            None if name == "hostname" => Ok(Self::Hostname),
            None if name == "mac" => Ok(Self::Mac(None)),
            None if name == "model" => Ok(Self::Model),
            None if name == "serial" => Ok(Self::Serial),
            // The kernel's rule for interface names.
            Some(("mac", interface))
                if !matches!(interface, "" | "." | "..")
                    && interface.len() <= 15
                    && !interface.contains(|c: char| c == '/' || c.is_whitespace()) =>
            {
                Ok(Self::Mac(Some(interface.to_owned())))
            }
            _ => Err(unknown()),
        }
    }

    /// Why there is no value.
    fn missing(&self) -> &'static str {
        match self {
            Self::Hostname => "this machine has no host name",
            Self::Mac(None) => {
                "no physical network interface with an address from its manufacturer (random and locally administered \
                 addresses do not count)"
            }
            Self::Mac(Some(_)) => {
                "no such network interface, or its address is not from its manufacturer (random and locally \
                 administered addresses do not count)"
            }
            Self::Model => "the device tree has no model",
            Self::Serial => {
                "no serial number in /proc/device-tree/serial-number, in product_serial and board_serial of \
                 /sys/class/dmi/id, or in /proc/cpuinfo (placeholders such as \"Default string\" do not count)"
            }
        }
    }
}

impl fmt::Display for BoardFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hostname => f.write_str("{hostname}"),
            Self::Mac(None) => f.write_str("{mac}"),
            Self::Mac(Some(interface)) => write!(f, "{{mac:{interface}}}"),
            Self::Model => f.write_str("{model}"),
            Self::Serial => f.write_str("{serial}"),
        }
    }
}

fn literal_of(text: &str) -> Result<String, String> {
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.')) {
        None => Ok(text.to_ascii_lowercase()),
        Some(other) => Err(format!("expected letters, digits, '-' and '.' between the parts, found {other:?}")),
    }
}

/// In lower case, with one `-` for what a DNS name cannot have. A host name keeps its dots, a MAC address loses its
/// colons.
fn cleaned(fact: &BoardFact, value: &str) -> String {
    let mut clean = String::new();
    for c in value.chars() {
        match c.to_ascii_lowercase() {
            ':' if matches!(fact, BoardFact::Mac(_)) => {}
            '.' if matches!(fact, BoardFact::Hostname) => clean.push('.'),
            c if c.is_ascii_alphanumeric() => clean.push(c),
            _ if clean.ends_with('-') => {}
            _ => clean.push('-'),
        }
    }
    clean.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(fact: &BoardFact) -> Option<String> {
        Some(match fact {
            BoardFact::Hostname => "Raspberry_Pi.local".to_owned(),
            BoardFact::Mac(None) => "dc:a6:32:01:02:03".to_owned(),
            BoardFact::Mac(Some(interface)) if interface == "wlan0" => "DC:A6:32:01:02:04".to_owned(),
            BoardFact::Mac(Some(_)) => return None,
            BoardFact::Model => "Raspberry Pi 4 Model B Rev 1.4 ".to_owned(),
            BoardFact::Serial => "10000000ABCDEF01".to_owned(),
        })
    }

    #[test]
    fn name_is_made_of_clean_facts() {
        for (template, name) in [
            ("edge-{serial}", "edge-10000000abcdef01"),
            ("Edge-{mac}.Site7", "edge-dca632010203.site7"),
            ("{mac:wlan0}", "dca632010204"),
            ("{model}-{serial}", "raspberry-pi-4-model-b-rev-1-4-10000000abcdef01"),
            ("{hostname}", "raspberry-pi.local"),
        ] {
            assert_eq!(template.parse::<NameTemplate>().unwrap().render(board).as_deref(), Ok(name), "{template}");
        }
    }

    #[test]
    fn name_that_is_no_dns_name_or_too_long_is_refused() {
        for template in ["-{serial}", "{serial}-", "{serial}..a", "{model}-{serial}-{hostname}"] {
            let error = template.parse::<NameTemplate>().unwrap().render(board).unwrap_err();
            assert!(error.starts_with(&format!("{template:?}: expected a DNS name")), "{error}");
        }
    }

    #[test]
    fn error_names_the_missing_fact() {
        let template = "a-{serial}-{mac:eth7}".parse::<NameTemplate>().unwrap();
        let error = template.render(board).unwrap_err();
        assert!(error.starts_with("\"a-{serial}-{mac:eth7}\": {mac:eth7}: no such network interface"), "{error}");
        let error = template.render(|_| None).unwrap_err();
        assert!(error.contains("{serial}: no serial number in /proc/device-tree"), "{error}");
        // Nothing is left of it.
        assert!(template.render(|_| Some("__".to_owned())).is_err());
    }

    #[test]
    fn bad_templates_are_refused() {
        for (template, words) in [
            ("edge", "found \"edge\""),
            ("", "found \"\""),
            ("edge-{uuid}", "found {uuid}"),
            ("{mac:}", "found {mac:}"),
            ("{mac:../x}", "found {mac:../x}"),
            ("{serial:x}", "found {serial:x}"),
            ("a_{serial}", "found '_'"),
            ("{serial", "expected } after \"{serial\""),
            ("b\u{fc}ro-{serial}", "found '\u{fc}'"),
        ] {
            let error = template.parse::<NameTemplate>().unwrap_err();
            assert!(error.contains(words), "{template}: {error}");
        }
    }
}
