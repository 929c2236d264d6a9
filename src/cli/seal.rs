//! `coracle seal`: Secrets of manifests, sealed so that only one board can open them.

use std::process::ExitCode;

use serde_json::{Map, Value};

use super::command_table::Seal;
use super::local_api::get;
use super::{failed, manifest_files, print};
use crate::control::server::NodeStatus;
use crate::kubelet::sealed_secrets::{SealKey, scope};
use crate::types::api::annotations::SEALED_FOR;
use crate::types::api::{Bytes, Secret, decode, to_yaml, yaml};
use crate::types::error::ErrorChain;

pub(super) fn run(command: &Seal) -> ExitCode {
    let key = match &command.to {
        Some(text) => SealKey::parse(text)
            .ok_or_else(|| format!("--to: expected the key that coracle seal prints, 44 characters; found {text:?}")),
        None => key_of_this_board(command),
    };
    let sealed = key.and_then(|key| match &command.filename {
        None => Ok(format!("{key}\n")),
        Some(path) => {
            let mut files = manifest_files::read_all(std::slice::from_ref(path));
            let text = files.pop().filter(|_| files.is_empty());
            let file = text.ok_or_else(|| format!("{}: expected a file", path.display()))?;
            let text = file.text.map_err(|error| format!("{}: {error}", file.name))?;
            sealed_manifest(&text, &key).map_err(|problem| format!("{}: {problem}", file.name))
        }
    });
    match sealed {
        Ok(text) => print(&text),
        Err(problem) => failed(&problem),
    }
}

fn key_of_this_board(command: &Seal) -> Result<SealKey, String> {
    let status = get::<NodeStatus>(&command.local_socket, "/status").map_err(|error| ErrorChain(&error).to_string())?;
    let key = status.seal_key.as_deref().and_then(SealKey::parse);
    key.ok_or_else(|| "this board has no key: see --offline-key-file".to_owned())
}

/// The documents of a manifest, all of them Secrets, with sealed values.
fn sealed_manifest(text: &[u8], key: &SealKey) -> Result<String, String> {
    let documents = yaml::parse(text).map_err(|error| error.to_string())?;
    if documents.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let mut sealed = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let at = |problem: String| format!("document {}: {problem}", index.saturating_add(1));
        if let Some(doubled) = document.duplicates.first() {
            return Err(at(doubled.to_string()));
        }
        sealed.push(to_yaml(&Value::Object(sealed_secret(document.value, key).map_err(at)?)));
    }
    Ok(sealed.join("---\n"))
}

/// Its other fields stay as they are.
fn sealed_secret(document: Value, key: &SealKey) -> Result<Map<String, Value>, String> {
    let mut fields = match document {
        Value::Object(fields) if fields.get("kind").and_then(Value::as_str) == Some("Secret") => fields,
        _ => return Err("expected a Secret".to_owned()),
    };
    let decoded = decode::<Secret>(Value::Object(fields.clone())).map_err(|error| error.to_string())?;
    let mut secret = decoded.value;
    if secret.metadata.annotations.get(SEALED_FOR).is_some() {
        return Err("it is sealed already".to_owned());
    }
    if secret.metadata.name.is_empty() {
        return Err("metadata.name: required, because the values are sealed for it".to_owned());
    }
    secret.merge_string_data();
    let namespace = match secret.metadata.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    };
    let mut data = Map::new();
    for (field, content) in secret.data.iter() {
        let value = key.seal(&scope(namespace, &secret.metadata.name, field), &content.0);
        let value = value.ok_or("the kernel has no random numbers, or the key is no key of a board")?;
        data.insert(field.into(), Value::String(Bytes(value).to_base64()));
    }
    fields.remove("stringData");
    fields.insert("data".to_owned(), Value::Object(data));
    let annotations = object_in(&mut fields, "metadata").and_then(|metadata| object_in(metadata, "annotations"));
    // It was decoded, so these are objects.
    annotations.map(|annotations| annotations.insert(SEALED_FOR.to_owned(), Value::String(key.to_string())));
    Ok(fields)
}

/// The object of this field, made if there is none. `None` if the field is something else.
fn object_in<'a>(fields: &'a mut Map<String, Value>, field: &str) -> Option<&'a mut Map<String, Value>> {
    let value = fields.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_sources::static_pod::{ManifestNode, Object, read_manifest};
    use crate::kubelet::sealed_secrets::BoardKey;
    use crate::state::pods::SourceName;
    use std::sync::Arc;

    const PLAIN: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: db, labels: {app: db}}
type: kubernetes.io/basic-auth
data: {username: YWRtaW4=, password: b2xk}
stringData: {password: new}
---
apiVersion: v1
kind: Secret
metadata: {name: empty, namespace: boats}
";

    fn node(material: u8) -> ManifestNode {
        ManifestNode { name: "n".to_owned(), board_key: Arc::new(Ok(BoardKey::derive(&[material; 32]))) }
    }

    /// What a node reads: the values of each Secret, or the error.
    fn read(text: &str, node: &ManifestNode) -> Vec<String> {
        let objects = read_manifest(text.as_bytes(), &node.origin(SourceName::File, "x.yaml", "")).unwrap();
        let shown = objects.into_iter().map(|object| match object.object {
            Ok(Object::Config(secret)) => format!("{}: {:?}", secret.key, secret.texts()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.to_string(),
        });
        shown.collect()
    }

    #[test]
    fn board_reads_what_was_sealed_for_it_and_another_board_does_not() {
        let (board, other) = (node(1), node(2));
        let key = board.board_key.as_ref().as_ref().unwrap().public();
        let sealed = sealed_manifest(PLAIN.as_bytes(), &key).unwrap();
        assert!(!sealed.contains("bmV3") && !sealed.contains("new") && sealed.contains("app: db"), "{sealed}");
        assert_eq!(read(&sealed, &board), read(PLAIN, &board));
        let refused = format!(
            "metadata.annotations[coracle.dev/sealed-for]: sealed for another board: the key of this one is {}",
            other.board_key.as_ref().as_ref().unwrap().public()
        );
        assert_eq!(read(&sealed, &other), [refused.clone(), refused]);
        let no_key = "metadata.annotations[coracle.dev/sealed-for]: this node cannot open it: no key in this test";
        assert_eq!(read(&sealed, &ManifestNode::named("n")), [no_key, no_key]);
    }

    #[test]
    fn sealed_value_is_refused_in_another_secret() {
        let board = node(1);
        let key = board.board_key.as_ref().as_ref().unwrap().public();
        let plain = "{apiVersion: v1, kind: Secret, metadata: {name: db}, stringData: {a: x, b: z}}";
        let sealed = sealed_manifest(plain.as_bytes(), &key).unwrap();
        let problem = "cannot be opened: it was sealed for a Secret of another namespace, name or key, or is damaged";
        let both = format!("data.a: {problem}; data.b: {problem}");
        assert_eq!(read(&sealed.replace("name: db", "name: other"), &board), [both]);
        let renamed = sealed.replace("  a: ", "  c: ");
        assert_ne!(renamed, sealed);
        assert_eq!(read(&renamed, &board), [format!("data.c: {problem}")]);
        let with_text = format!("{sealed}stringData: {{c: z}}\n");
        assert_eq!(
            read(&with_text, &board),
            ["stringData: must be empty in a sealed Secret, whose values are in data"]
        );
    }

    #[test]
    fn only_secrets_are_sealed_and_only_once() {
        let key = BoardKey::derive(&[1; 32]).public();
        let problem = |text: &str| sealed_manifest(text.as_bytes(), &key).unwrap_err();
        assert_eq!(problem(""), "the file is empty");
        assert_eq!(problem("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), "document 1: expected a Secret");
        let sealed = sealed_manifest(PLAIN.as_bytes(), &key).unwrap();
        assert_eq!(problem(&sealed), "document 1: it is sealed already");
        assert!(problem("{apiVersion: v1, kind: Secret}").contains("metadata.name: required"));
        assert!(problem("{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: '%'}}").contains("data.a"));
    }
}
