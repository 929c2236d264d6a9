//! The pods put on this node, and whether a manifest may be added. Pure: the moment is an argument.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::files::{FileContent, key, names};
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::control::pod_sources::whole_manifest::WholeManifest;
use crate::state::pods::{ApplyOutcome, SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::Time;
use crate::types::sorted::SortedMap;

/// The pods by file name.
#[derive(Debug)]
pub(super) struct PodList {
    node: ManifestNode,
    pods: SortedMap<String, Entry>,
    /// The directory could not be read.
    problem: Option<SourceProblem>,
    /// The directory has been read once.
    loaded: bool,
    /// The problems that were already logged.
    logged: Vec<SourceProblem>,
}

#[derive(Debug, Default)]
struct Entry {
    manifest: WholeManifest,
    problems: Vec<SourceProblem>,
    /// The file holds an unknown pod.
    broken: bool,
}

/// An acceptable manifest.
#[derive(Debug)]
pub(super) struct AcceptedManifest {
    pub(super) manifest: WholeManifest,
    /// What putting it does, if its bytes differ from the stored ones.
    pub(super) how: ApplyOutcome,
    pub(super) warnings: Vec<String>,
}

/// Why a manifest is not accepted.
#[derive(Debug)]
pub(super) enum RefusedManifest {
    /// One line.
    Invalid(String),
    LongName,
    /// Of another pod than that of the path.
    OtherPod {
        field: &'static str,
        expected: String,
        found: String,
    },
    PodCount(usize),
}

impl fmt::Display for RefusedManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(problems) => f.write_str(problems),
            Self::LongName => {
                write!(f, "metadata.name: expected at most {MAX_POD_KEY_BYTES} bytes together with the namespace")
            }
            Self::OtherPod { field, expected, found } => {
                write!(f, "{field}: expected {expected} as in the path, found {found}")
            }
            Self::PodCount(count) => {
                write!(f, "expected one Pod or workload, and ConfigMaps, Secrets and Services of it; found {count}")
            }
        }
    }
}

impl std::error::Error for RefusedManifest {}

impl PodList {
    pub(super) fn new(node: ManifestNode) -> Self {
        Self { node, pods: SortedMap::new(), problem: None, loaded: false, logged: Vec::new() }
    }

    /// Stores the content of the files. `config_seen` is the time for the pods' annotations.
    pub(super) fn load(
        &mut self,
        files: Vec<(String, io::Result<FileContent>)>,
        config_seen: impl ToString,
        now: Time,
    ) {
        let config_seen = config_seen.to_string();
        self.problem = None;
        self.loaded = true;
        for (key, loaded) in files {
            let Some((namespace, name)) = names(&key) else { continue };
            let origin = origin(namespace, name);
            let manifest = match loaded {
                Ok(FileContent::Manifest(text)) => {
                    self.read(namespace, name, &text, &config_seen, now).map_err(|error| error.to_string())
                }
                Ok(FileContent::Damaged) => {
                    Err("its file is corrupt and was set aside: apply the pod again, or delete it".to_owned())
                }
                Err(error) => Err(format!("its file cannot be read: {error}")),
            };
            let problem =
                |message| SourceProblem { origin: Arc::clone(&origin), message, keeps_last_good: false, since: now };
            let entry = match manifest {
                Ok(manifest) => Entry::of(manifest, &origin, now),
                Err(message) => Entry { problems: vec![problem(message)], broken: true, ..Entry::default() },
            };
            self.pods.insert(key, entry);
        }
    }

    /// The directory cannot be read.
    pub(super) fn fail(&mut self, origin: &str, message: String, now: Time) {
        if self.problem.as_ref().is_none_or(|old| old.message != message) {
            self.problem =
                Some(SourceProblem { origin: Arc::from(origin), message, keeps_last_good: false, since: now });
        }
    }

    /// The pod was put, even if its file is damaged now.
    pub(super) fn has(&self, key: &str) -> bool {
        self.pods.contains_key(key)
    }

    /// Whether `text` may be the manifest of this pod.
    pub(super) fn judge(
        &self,
        namespace: &str,
        name: &str,
        text: &[u8],
        config_seen: impl ToString,
        now: Time,
    ) -> Result<AcceptedManifest, RefusedManifest> {
        let manifest = self.read(namespace, name, text, &config_seen.to_string(), now)?;
        let key = key(namespace, name);
        if key.len() > MAX_POD_KEY_BYTES {
            return Err(RefusedManifest::LongName);
        }
        let before = self.pods.get(&key);
        let how = if before.is_some() { ApplyOutcome::Changed } else { ApplyOutcome::Created };
        let manifest = match before {
            Some(before) => manifest.keeping(&before.manifest),
            None => manifest,
        };
        let warnings = manifest.warnings.clone();
        Ok(AcceptedManifest { manifest, how, warnings })
    }

    fn read(
        &self,
        namespace: &str,
        name: &str,
        text: &[u8],
        config_seen: &str,
        now: Time,
    ) -> Result<WholeManifest, RefusedManifest> {
        let shown = origin(namespace, name);
        let origin = self.node.origin(SourceName::Local, &shown, config_seen);
        let manifest = WholeManifest::read(text, &origin, &shown, now).map_err(RefusedManifest::Invalid)?;
        let [(its_namespace, its_name)] = &*manifest.names else {
            return Err(RefusedManifest::PodCount(manifest.names.len()));
        };
        for (field, expected, found) in
            [("metadata.namespace", namespace, &**its_namespace), ("metadata.name", name, &**its_name)]
        {
            if expected != found {
                let (expected, found) = (expected.to_owned(), found.to_owned());
                return Err(RefusedManifest::OtherPod { field, expected, found });
            }
        }
        Ok(manifest)
    }

    pub(super) fn put(&mut self, key: String, manifest: WholeManifest, now: Time) {
        let Some((namespace, name)) = names(&key) else { return };
        let origin = origin(namespace, name);
        self.pods.insert(key, Entry::of(manifest, &origin, now));
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.pods.remove(key);
    }

    /// The complete update of this source.
    pub(super) fn update(&self) -> SourceUpdate {
        let pods = self.pods.iter().flat_map(|(key, entry)| {
            let origin = names(key).map(|(namespace, name)| origin(namespace, name)).unwrap_or_default();
            entry.manifest.pods.iter().map(move |pod| SourcePod { pod: Arc::clone(pod), origin: Arc::clone(&origin) })
        });
        SourceUpdate {
            source: SourceName::Local,
            pods: pods.collect(),
            objects: self.pods.values().flat_map(|entry| &entry.manifest.objects).cloned().collect(),
            mirrors: Vec::new(),
            problems: self.problems().cloned().collect(),
            unread: Vec::new(),
            complete: self.loaded && self.problem.is_none() && !self.pods.values().any(|entry| entry.broken),
            relisted: false,
        }
    }

    fn problems(&self) -> impl Iterator<Item = &SourceProblem> {
        self.problem.iter().chain(self.pods.values().flat_map(|entry| &entry.problems))
    }

    /// The problems that are new since the last call.
    pub(super) fn new_problems(&mut self) -> Vec<SourceProblem> {
        let all: Vec<SourceProblem> = self.problems().cloned().collect();
        let new = all.iter().filter(|problem| !self.logged.contains(problem)).cloned().collect();
        self.logged = all;
        new
    }
}

impl Entry {
    fn of(manifest: WholeManifest, origin: &Arc<str>, since: Time) -> Self {
        let warning = |line: &String| SourceProblem {
            origin: Arc::clone(origin),
            message: format!("warning: {line}"),
            keeps_last_good: false,
            since,
        };
        let problems = manifest.warnings.iter().map(warning).collect();
        Self { manifest, problems, broken: false }
    }
}

/// The pod's origin as shown to users and hashed into its uid.
fn origin(namespace: &str, name: &str) -> Arc<str> {
    Arc::from(format!("local:{namespace}/{name}"))
}

/// Longest file name, less the suffixes for files being written or set aside.
const MAX_POD_KEY_BYTES: usize = 255 - 8;
