//! The node's name from a template: decided once, and kept in the state directory with the board's serial number. A
//! replaced network interface or another template does not rename the node.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::Error;
use super::name_template::{BoardFact, NameTemplate};
use super::node_name::{self, is_subdomain};
use crate::platform::host::board_identity;
use crate::platform::host::durable::{self, StoredFile};

/// The kept name and board of a state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptIdentity {
    /// Empty: no template has named this node.
    pub(crate) name: String,
    /// The template that has named it.
    pub(crate) template: String,
    /// Of the board that the state directory belongs to; empty: unknown.
    pub(crate) serial: String,
}

/// Below the root directory.
pub(crate) const KEPT_IDENTITY: &str = "coracle/node.json";
const MAX_IDENTITY_BYTES: u64 = 4096;

impl KeptIdentity {
    /// What the state directory has; nothing if the file is missing or cannot be used. Blocks.
    pub(crate) fn read(root_dir: &Path) -> Self {
        match durable::read(&root_dir.join(KEPT_IDENTITY), MAX_IDENTITY_BYTES) {
            Ok(StoredFile::Whole(text)) => Self::parse(&text),
            Ok(StoredFile::Damaged | StoredFile::Nothing) | Err(_) => Self::default(),
        }
    }

    fn parse(text: &[u8]) -> Self {
        // The first line is the checksum, which `durable` has removed.
        let kept: Value = serde_json::from_slice(text).unwrap_or_default();
        let text = |field: &str| kept.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let kept = Self { name: text("name"), template: text("template"), serial: text("serial") };
        if kept.name.is_empty() || is_subdomain(&kept.name) { kept } else { Self::default() }
    }

    /// Writes it if the state directory has something else. Blocks.
    pub(crate) fn keep(&self, root_dir: &Path) -> io::Result<bool> {
        let kept = json!({ "name": self.name, "template": self.template, "serial": self.serial });
        durable::write_changed(&root_dir.join(KEPT_IDENTITY), kept.to_string().as_bytes())
    }

    /// What to keep of a node that `template` has named `name`, on a board with this serial number. A board that has
    /// taken over the state of another one does not make it its own: `coracle doctor` tells.
    pub(crate) fn with(self, name: &str, template: Option<&NameTemplate>, serial: Option<String>) -> Self {
        let is_decided = !self.name.is_empty();
        let serial = if self.serial.is_empty() { serial.unwrap_or_default() } else { self.serial };
        match template {
            Some(template) if !is_decided => {
                Self { name: name.to_owned(), template: template.as_str().to_owned(), serial }
            }
            _ => Self { serial, ..self },
        }
    }

    /// Whether the state is that of another board than the one with this serial number.
    pub(crate) fn is_of_other_board(&self, serial: &str) -> bool {
        !self.serial.is_empty() && self.serial != serial
    }
}

/// The name that `template` gives this node, or has given it. Blocks.
pub(crate) fn name_from(template: &NameTemplate, root_dir: &Path, warnings: &mut Vec<String>) -> Result<String, Error> {
    let kept = KeptIdentity::read(root_dir);
    if kept.name.is_empty() {
        let root = Path::new("/");
        let name = template.render(|fact| match fact {
            BoardFact::Hostname => super::hostname().ok().map(|name| node_name::from_host(&name)),
            BoardFact::Mac(interface) => board_identity::mac(root, interface.as_deref()),
            BoardFact::Model => board_identity::model(root),
            BoardFact::Serial => board_identity::serial(root),
        });
        // Without a fallback: the service tries again, and a network interface on USB may appear late.
        return name.map_err(|fault| Error::Flag(format!("name template {fault}")));
    }
    // Without a template, another board had the name.
    if !kept.template.is_empty() && kept.template != template.as_str() {
        let path = root_dir.join(KEPT_IDENTITY);
        warnings.push(format!(
            "this node keeps its name {} from the name template {:?}; remove {} to name it by {:?}",
            kept.name,
            kept.template,
            path.display(),
            template.as_str()
        ));
    }
    Ok(kept.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::TestFolder;

    fn template(text: &str) -> NameTemplate {
        text.parse().unwrap()
    }

    #[test]
    fn name_is_decided_once() {
        let folder = TestFolder::new("kept-name");
        let first = template("first-{hostname}");
        let name = name_from(&first, &folder.0, &mut Vec::new()).unwrap();
        assert!(name.starts_with("first-"), "{name}");
        let kept = KeptIdentity::read(&folder.0).with("first-x", Some(&first), Some("S1".to_owned()));
        assert!(kept.keep(&folder.0).unwrap());
        let mut warnings = Vec::new();
        assert_eq!(name_from(&first, &folder.0, &mut warnings).unwrap(), "first-x");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(name_from(&template("second-{hostname}"), &folder.0, &mut warnings).unwrap(), "first-x");
        assert!(warnings[0].contains("keeps its name first-x from the name template \"first-{hostname}\""));
        // Nothing is written again, and neither another board nor another template changes it.
        let again = KeptIdentity::read(&folder.0).with("y", Some(&template("{serial}")), Some("S2".to_owned()));
        assert_eq!(again, kept);
        assert!(!again.keep(&folder.0).unwrap());
        assert!(again.is_of_other_board("S2") && !again.is_of_other_board("S1"));
    }

    #[test]
    fn name_of_a_replaced_board_needs_no_template() {
        let folder = TestFolder::new("kept-replaced");
        let kept = KeptIdentity { name: "edge-7".to_owned(), ..KeptIdentity::default() };
        kept.keep(&folder.0).unwrap();
        let mut warnings = Vec::new();
        assert_eq!(name_from(&template("x-{hostname}"), &folder.0, &mut warnings).unwrap(), "edge-7");
        assert!(warnings.is_empty(), "{warnings:?}");
        let (name, template) = crate::platform::config::default_node_name(None, &folder.0).unwrap();
        assert_eq!((&*name, template), ("edge-7", None));
    }

    #[test]
    fn damaged_file_decides_nothing() {
        let folder = TestFolder::new("kept-damaged");
        let path = folder.0.join(KEPT_IDENTITY);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["", "{\"name\":\"x\"}", "# coracle sha256:00\n{}"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(KeptIdentity::read(&folder.0), KeptIdentity::default(), "{text}");
        }
        durable::write(&path, br#"{"name": "no name!", "serial": "1"}"#).unwrap();
        assert_eq!(KeptIdentity::read(&folder.0), KeptIdentity::default());
    }

    #[test]
    fn board_of_node_without_template_is_kept_and_named_later() {
        let plain = KeptIdentity::default().with("n", None, Some("S1".to_owned()));
        assert_eq!(plain, KeptIdentity { serial: "S1".to_owned(), ..KeptIdentity::default() });
        let named = plain.with("edge-s1", Some(&template("edge-{serial}")), Some("S1".to_owned()));
        assert_eq!((&*named.name, &*named.template, &*named.serial), ("edge-s1", "edge-{serial}", "S1"));
    }
}
