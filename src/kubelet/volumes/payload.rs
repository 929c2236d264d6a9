//! File contents of volumes from ConfigMaps, Secrets and the pod itself. Pure.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::SetUpInputs;
use super::error::FilesProblem;
use crate::state::objects::{ConfigObject, FileContent, Lookup, ObjectKind, PodCertificateKey, TokenKey};
use crate::types::api::{
    ClusterTrustBundleProjection, Container, DownwardApiVolumeFile, KeyToPath, ObjectProjection, Pod,
    ProjectedVolumeSource, ProjectionSource, ResourceFieldSelector, ServiceAccountTokenProjection, VolumeSource,
    metadata_field, resource_field,
};
use crate::types::sorted::SortedMap;

/// Files by their path in the volume, thousands if the pod's author wants.
pub(super) type Payload = BTreeMap<PathBuf, PayloadFile>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PayloadFile {
    pub(super) content: FileContent,
    pub(super) mode: u32,
    /// The owner, if not root.
    pub(super) user: Option<u32>,
}

/// What the file volumes of a pod share: the room for their files, and what many files ask for.
pub(super) struct PodFiles<'a> {
    pod: &'a Pod,
    inputs: SetUpInputs<'a>,
    /// Bytes left of [`MAX_POD_FILE_BYTES`]; `None` once they did not suffice.
    room: Cell<Option<usize>>,
    containers: OnceCell<SortedMap<&'a str, &'a Container>>,
    user: OnceCell<Option<u32>>,
    /// Fields of the metadata by their paths. One key may be in many files.
    fields: RefCell<BTreeMap<&'a str, FileContent>>,
}

/// Limit of the total size of a pod's files from ConfigMaps, Secrets and the pod itself, which take memory.
const MAX_POD_FILE_BYTES: usize = 64 << 20;
/// What counts for a file beside its content: the kernel's inodes and names of the file and of the link to it.
const BYTES_OF_A_FILE: usize = 2 << 10;

impl<'a> PodFiles<'a> {
    pub(super) fn new(pod: &'a Pod, inputs: SetUpInputs<'a>) -> Self {
        Self {
            pod,
            inputs,
            room: Cell::new(Some(MAX_POD_FILE_BYTES)),
            containers: OnceCell::new(),
            user: OnceCell::new(),
            fields: RefCell::default(),
        }
    }

    /// Counts `size` bytes in place of `old` bytes. After a file that does not fit nothing fits: which volumes of a pod
    /// fail does not depend on the sizes of those after them.
    fn take_room(&self, size: usize, old: usize) -> Result<(), FilesProblem> {
        let room_left = self.room.get().and_then(|room| room.saturating_add(old).checked_sub(size));
        self.room.set(room_left);
        room_left.map(drop).ok_or(FilesProblem::TooLarge { most: MAX_POD_FILE_BYTES })
    }

    fn metadata(&self, path: &'a str) -> Result<FileContent, FilesProblem> {
        if let Some(value) = self.fields.borrow().get(path) {
            return Ok(Arc::clone(value));
        }
        let content = Arc::new(metadata_field(self.pod, path).map_err(FilesProblem::Field)?.into_bytes());
        self.fields.borrow_mut().insert(path, Arc::clone(&content));
        Ok(content)
    }

    fn resource(&self, field: &ResourceFieldSelector) -> Result<FileContent, FilesProblem> {
        let containers = self.containers.get_or_init(|| self.pod.spec.containers_by_name());
        let container = containers.get(field.container_name.as_str()).copied();
        let text = resource_field(self.pod, container, field, &self.inputs.node.allocatable);
        Ok(Arc::new(text.map_err(FilesProblem::Field)?.into_bytes()))
    }
}

/// The files of a ConfigMap, Secret, projected or downward API volume.
pub(super) fn payload<'a>(shared: &PodFiles<'a>, source: &'a VolumeSource) -> Result<Payload, FilesProblem> {
    shared.take_room(0, 0)?;
    let mut files = Files { pod: shared.pod, inputs: shared.inputs, shared, payload: Payload::new() };
    if let VolumeSource::ConfigMap(source) = source {
        let reference = Reference {
            kind: ObjectKind::ConfigMap,
            name: &source.name,
            items: &source.items,
            optional: source.optional,
        };
        files.add_object(reference, source.default_mode)?;
    } else if let VolumeSource::Secret(source) = source {
        let name = &source.secret_name;
        let reference = Reference { kind: ObjectKind::Secret, name, items: &source.items, optional: source.optional };
        files.add_object(reference, source.default_mode)?;
    } else if let VolumeSource::DownwardApi(source) = source {
        files.add_fields(&source.items, source.default_mode)?;
    } else if let VolumeSource::Projected(source) = source {
        files.add_projected(source)?;
    }
    Ok(files.payload)
}

struct Files<'a, 'b> {
    pod: &'a Pod,
    inputs: SetUpInputs<'a>,
    shared: &'b PodFiles<'a>,
    payload: Payload,
}

/// A reference to a ConfigMap or Secret.
struct Reference<'a> {
    kind: ObjectKind,
    name: &'a str,
    items: &'a [KeyToPath],
    optional: Option<bool>,
}

impl<'a> Reference<'a> {
    fn projected(kind: ObjectKind, object: &'a ObjectProjection) -> Self {
        Self { kind, name: &object.name, items: &object.items, optional: object.optional }
    }
}

impl<'a> Files<'a, '_> {
    /// Collects the problems of all sources. A later file replaces an earlier one with the same path.
    fn add_projected(&mut self, volume: &'a ProjectedVolumeSource) -> Result<(), FilesProblem> {
        let mode = volume.default_mode;
        let mut problems = Vec::new();
        for source in volume.sources.iter().filter_map(|projection| projection.source.as_ref()) {
            let added = match source {
                ProjectionSource::ConfigMap(object) => {
                    self.add_object(Reference::projected(ObjectKind::ConfigMap, object), mode)
                }
                ProjectionSource::Secret(object) => {
                    self.add_object(Reference::projected(ObjectKind::Secret, object), mode)
                }
                ProjectionSource::DownwardApi(fields) => self.add_fields(&fields.items, mode),
                ProjectionSource::ServiceAccountToken(token) => self.add_token(token, mode),
                ProjectionSource::ClusterTrustBundle(bundle) => self.add_trust_anchors(bundle, mode),
                ProjectionSource::PodCertificate(certificate) => self.add_certificate(certificate, mode),
            };
            if matches!(added, Err(FilesProblem::TooLarge { .. })) {
                return added;
            }
            problems.extend(added.err());
        }
        match problems.pop() {
            None => Ok(()),
            Some(problem) if problems.is_empty() => Err(problem),
            Some(problem) => {
                problems.push(problem);
                Err(FilesProblem::Several(problems))
            }
        }
    }

    fn add_object(&mut self, reference: Reference<'_>, default_mode: Option<i32>) -> Result<(), FilesProblem> {
        let Reference { kind, name, items, optional } = reference;
        let optional = optional == Some(true);
        let object = match self.inputs.objects.get(self.pod, kind, name) {
            Lookup::Found(object) => object,
            Lookup::Missing if optional => return Ok(()),
            Lookup::Missing => return Err(FilesProblem::NoSuchObject { kind, name: name.to_owned() }),
            Lookup::Unknown(why) => return Err(FilesProblem::ObjectUnknown { kind, why }),
        };
        if items.is_empty() {
            return object
                .files()
                .try_for_each(|(key, content)| self.add(key, Arc::clone(content), None, default_mode));
        }
        for item in items {
            match content(object, item) {
                Ok(content) => self.add(&item.path, Arc::clone(content), item.mode, default_mode)?,
                Err(_) if optional => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }

    fn add_token(
        &mut self,
        token: &ServiceAccountTokenProjection,
        default_mode: Option<i32>,
    ) -> Result<(), FilesProblem> {
        if !self.pod.is_of_cluster() {
            return Err(FilesProblem::NeedsCluster { kind: "serviceAccountToken" });
        }
        let text = match self.inputs.objects.token(TokenKey::of(self.pod, token)) {
            Lookup::Found(text) => text,
            Lookup::Missing => return Err(FilesProblem::NoToken { why: "the server has none".to_owned() }),
            Lookup::Unknown(why) => return Err(FilesProblem::NoToken { why }),
        };
        self.add_own(&token.path, text.as_bytes().to_owned(), default_mode)
    }

    fn add_trust_anchors(
        &mut self,
        bundle: &ClusterTrustBundleProjection,
        default_mode: Option<i32>,
    ) -> Result<(), FilesProblem> {
        if !self.pod.is_of_cluster() {
            return Err(FilesProblem::NeedsCluster { kind: "clusterTrustBundle" });
        }
        let text = match self.inputs.objects.trust_anchors(bundle) {
            Lookup::Found(text) => text,
            // As upstream, the file is there, and empty.
            Lookup::Missing if bundle.optional == Some(true) => String::new(),
            Lookup::Missing => return Err(FilesProblem::NoTrustBundle { name: bundle.name.clone() }),
            Lookup::Unknown(why) => return Err(FilesProblem::TrustBundleUnknown { why }),
        };
        self.add_own(&bundle.path, text.into_bytes(), default_mode)
    }

    /// The bundle of key and chain, and each of them, where the projection has a path for it.
    fn add_certificate(&mut self, projection: &Value, default_mode: Option<i32>) -> Result<(), FilesProblem> {
        if !self.pod.is_of_cluster() {
            return Err(FilesProblem::NeedsCluster { kind: "podCertificate" });
        }
        let (key, chain) = match self.inputs.objects.certificate(PodCertificateKey::of(self.pod, projection)) {
            Lookup::Found(certificate) => certificate,
            Lookup::Missing => return Err(FilesProblem::NoCertificate { why: "the server has none".to_owned() }),
            Lookup::Unknown(why) => return Err(FilesProblem::NoCertificate { why }),
        };
        let files =
            [("credentialBundlePath", &[key, chain][..]), ("keyPath", &[key]), ("certificateChainPath", &[chain])];
        for (field, parts) in files {
            if let Some(path) = projection.get(field).and_then(Value::as_str).filter(|path| !path.is_empty()) {
                self.add_own(path, parts.concat().into_bytes(), default_mode)?;
            }
        }
        Ok(())
    }

    /// A file owned by the pod's user and unreadable for others, if all containers have the same known user.
    fn add_own(&mut self, path: &str, content: Vec<u8>, default_mode: Option<i32>) -> Result<(), FilesProblem> {
        let user = *self.shared.user.get_or_init(|| single_user(self.pod));
        let has_group = self.pod.spec.security_context.as_ref().is_some_and(|context| context.fs_group.is_some());
        let mode = if user.is_some() || has_group { Some(PRIVATE_FILE_MODE) } else { None };
        self.add(path, Arc::new(content), mode, default_mode)?;
        if let Some(file) = path_in_volume(path).and_then(|file_path| self.payload.get_mut(&file_path)) {
            file.user = user;
        }
        Ok(())
    }

    fn add_fields(
        &mut self,
        items: &'a [DownwardApiVolumeFile],
        default_mode: Option<i32>,
    ) -> Result<(), FilesProblem> {
        for item in items {
            let content = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => self.shared.metadata(&field.field_path)?,
                (None, Some(field)) => self.shared.resource(field)?,
                // Rejected by validation.
                (None, None) => continue,
            };
            self.add(&item.path, content, item.mode, default_mode)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        path: &str,
        content: FileContent,
        mode: Option<i32>,
        default: Option<i32>,
    ) -> Result<(), FilesProblem> {
        let file_path = path_in_volume(path).ok_or_else(|| FilesProblem::BackSteps { path: path.to_owned() })?;
        let mode = mode.or(default).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_FILE_MODE);
        // A file that replaces another one counts as well, or thousands of sources could repeat thousands of keys.
        let size = content.len() + BYTES_OF_A_FILE;
        let old = self.payload.insert(file_path, PayloadFile { content, mode: mode & 0o777, user: None });
        self.shared.take_room(size, old.map_or(0, |old| old.content.len()))
    }
}

fn content<'a>(object: &'a ConfigObject, item: &KeyToPath) -> Result<&'a FileContent, FilesProblem> {
    object.file(&item.key).ok_or_else(|| FilesProblem::NoSuchKey { kind: object.key.kind, key: item.key.clone() })
}

/// The path of a file in its volume; `None` if it leaves the volume or has a reserved prefix.
fn path_in_volume(path: &str) -> Option<PathBuf> {
    let mut in_volume = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => in_volume.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) | Component::RootDir => return None,
        }
    }
    let first = in_volume.components().next()?;
    (!first.as_os_str().as_encoded_bytes().starts_with(b"..")).then_some(in_volume)
}

/// The user of all containers, if the spec sets the same one for each (`FsUserFrom` in pkg/volume/util).
fn single_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let mut users = pod.spec.all_containers().map(|container| {
        let container_user = container.security_context.as_ref().and_then(|context| context.run_as_user);
        container_user.or(of_pod)
    });
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}

/// The API's default for files of volumes; any user of a container can read them.
const DEFAULT_FILE_MODE: u32 = 0o644;
const PRIVATE_FILE_MODE: i32 = 0o600;

#[cfg(test)]
mod tests;
