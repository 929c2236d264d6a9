//! Reads configuration files and merges drop-ins.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Error;
use super::check::{Problem, check_document, remove_unknown};
use super::feature_gates::FEATURE_GATES_FIELD;
use super::pods::MAX_PODS_FIELD;
use super::schema::{Field, KUBELET_CONFIGURATION, Kind};
use crate::types::api::yaml::{self, Document, DuplicateKey, ParseError};
use crate::types::sorted::SortOnce;

/// The fields of `--config`, overlaid by those of every `*.conf` file below `--config-dir`, ordered by path. What the
/// kubelet ignores in them is ignored with a warning.
pub(super) fn read(
    config: Option<&Path>,
    config_dir: Option<&Path>,
    warnings: &mut Vec<String>,
) -> Result<Map<String, Value>, Error> {
    let mut fields = Map::new();
    if let Some(path) = config {
        merge(&mut fields, read_one(path, warnings)?);
    }
    if let Some(dir) = config_dir {
        let mut drop_ins = Vec::new();
        find_drop_ins(dir, MAX_CONFIG_DIRECTORY_DEPTH, &mut drop_ins)?;
        for path in drop_ins {
            merge(&mut fields, read_one(&path, warnings)?);
        }
    }
    Ok(fields)
}

fn read_one(path: &Path, warnings: &mut Vec<String>) -> Result<Map<String, Value>, Error> {
    let unread = |source| Error::Read { path: path.to_owned(), source };
    let unparsed = |source| Error::Parse { path: path.to_owned(), source };
    let refused = |problem| Error::Field { path: path.to_owned(), problem };
    let text = read_bytes(path).map_err(unread)?;
    let FirstDocument { value, ignored } = first_document(&text).map_err(unparsed)?.ok_or_else(|| {
        let fault = "expected one KubeletConfiguration, found 0 documents".to_owned();
        refused(Problem { path: String::new(), fault })
    })?;
    warnings.extend(ignored.into_iter().map(|warning| format!("{}: {warning}", path.display())));
    check_document(&value).map_err(refused)?;
    let Value::Object(mut fields) = value else { return Ok(Map::new()) };
    resolve_paths(&mut fields, KUBELET_CONFIGURATION, path.parent().unwrap_or(Path::new("")));
    Ok(fields)
}

/// A KubeletConfiguration as the kubelet decodes it. Wrong values are left to the check.
#[derive(Debug)]
pub(crate) struct FirstDocument {
    pub(super) value: Value,
    /// What is ignored in the text, for warnings.
    pub(super) ignored: Vec<String>,
}

impl FirstDocument {
    pub(super) fn is_configuration(&self) -> bool {
        self.value.get("kind").is_some_and(|kind| kind == "KubeletConfiguration")
    }
}

/// The first document of a configuration; `None`: there is none.
pub(super) fn first_document(text: &[u8]) -> Result<Option<FirstDocument>, ParseError> {
    let mut ignored = Vec::new();
    let documents = match yaml::parse(text) {
        Ok(documents) => documents,
        // What follows the first document need not even be YAML.
        Err(error) => match yaml::parse_first(text) {
            Ok(Some(document)) => {
                ignored.push(format!("{error}; only the first document is read"));
                vec![document]
            }
            Ok(None) | Err(_) => return Err(error),
        },
    };
    let number = documents.len();
    let Some(Document { mut value, duplicates, .. }) = documents.into_iter().next() else { return Ok(None) };
    if number > 1 {
        ignored.push(format!("{number} documents, only the first is read"));
    }
    for DuplicateKey { path, position } in duplicates {
        let line = position.map(|position| format!("line {}: ", position.line)).unwrap_or_default();
        ignored.push(format!("{line}{path} is given twice, the later one counts"));
    }
    ignored.extend(remove_unknown(&mut value, KUBELET_CONFIGURATION));
    Ok(Some(FirstDocument { value, ignored }))
}

pub(super) fn one(documents: Vec<Document>, kind: &str) -> Result<Document, Problem> {
    let [document] = <[Document; 1]>::try_from(documents).map_err(|documents| Problem {
        path: String::new(),
        fault: format!("expected one {kind}, found {} documents", documents.len()),
    })?;
    Ok(document)
}

pub(super) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_CONFIG_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_CONFIG_FILE_BYTES) {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Walks `dir` by name as Go's `filepath.WalkDir` does: symlinks to directories are not followed.
fn find_drop_ins(dir: &Path, levels: u32, drop_ins: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |source| Error::Read { path: dir.to_owned(), source };
    let mut entries = fs::read_dir(dir).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_once_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            if levels > 0 {
                find_drop_ins(&path, levels - 1, drop_ins)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "conf") && !path.is_dir() {
            drop_ins.push(path);
        }
    }
    Ok(())
}

/// Makes relative paths in a file relative to the file's directory.
fn resolve_paths(fields: &mut Map<String, Value>, schema: &[Field], dir: &Path) {
    for Field { name, kind, .. } in schema {
        match (kind, fields.get_mut(*name)) {
            (Kind::Object(schema), Some(Value::Object(fields))) => resolve_paths(fields, schema, dir),
            (Kind::Path, Some(Value::String(path))) if !path.is_empty() && !path.starts_with('/') => {
                *path = dir.join(&*path).to_string_lossy().into_owned();
            }
            _ => {}
        }
    }
}

/// Lays the fields of flags over those of files. A map of flags replaces that of the files, as `Set` of upstream's flags
/// clears it; only feature gates are merged (`kubeletConfigFlagPrecedence` in cmd/kubelet/app/server.go).
pub(super) fn lay_flags_over(fields: &mut Map<String, Value>, flags: Map<String, Value>) {
    for Field { name, kind, .. } in KUBELET_CONFIGURATION {
        let is_map = matches!(kind, Kind::Map(_) | Kind::Keys(..) | Kind::Options(_));
        if is_map && *name != FEATURE_GATES_FIELD && flags.contains_key(*name) {
            fields.remove(*name);
        }
    }
    // Upstream sets the defaults before it reads the flags: 0 of a file is the default, 0 of the flag is no pod.
    if fields.get(MAX_PODS_FIELD).and_then(Value::as_i64) == Some(0) {
        fields.remove(MAX_PODS_FIELD);
    }
    merge(fields, flags);
}

/// Merges `patch` into `fields` (RFC 7396): null removes, mappings are merged, anything else replaces.
pub(super) fn merge(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                fields.remove(&name);
            }
            Value::Object(patch) => {
                let inner = fields.entry(name).or_insert(Value::Null);
                if !inner.is_object() {
                    *inner = Value::Object(Map::new());
                }
                if let Value::Object(inner) = inner {
                    merge(inner, patch);
                }
            }
            value => {
                fields.insert(name, value);
            }
        }
    }
}

const MAX_CONFIG_FILE_BYTES: u64 = 1 << 20;
/// Most levels of directories below `--config-dir`.
const MAX_CONFIG_DIRECTORY_DEPTH: u32 = 16;
