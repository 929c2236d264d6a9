//! Validates the volumes whose files the kubelet writes: ConfigMaps, Secrets, downward API, tokens. Pure.

use super::faults::Faults;
use super::field_selectors::{self, FieldTarget};
use super::file_paths;
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{
    ConfigMapVolumeSource, DownwardApiVolumeFile, DownwardApiVolumeSource, KeyToPath, ProjectedVolumeSource,
    ProjectionSource, SecretVolumeSource, ServiceAccountTokenProjection,
};
use crate::types::sorted::Seen;

pub(super) fn check_config_map(source: &ConfigMapVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    check_object(&source.name, "name", &source.items, path, faults);
    check_mode(source.default_mode, &path.key("defaultMode"), faults);
}

pub(super) fn check_secret(source: &SecretVolumeSource, path: &Path<'_>, faults: &mut Faults) {
    check_object(&source.secret_name, "secretName", &source.items, path, faults);
    check_mode(source.default_mode, &path.key("defaultMode"), faults);
}

pub(super) fn check_downward_api(
    source: &DownwardApiVolumeSource,
    scope: &Scope<'_>,
    path: &Path<'_>,
    faults: &mut Faults,
) {
    check_mode(source.default_mode, &path.key("defaultMode"), faults);
    check_files(&source.items, scope, path, faults);
}

pub(super) fn check_projected(volume: &ProjectedVolumeSource, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    check_mode(volume.default_mode, &path.key("defaultMode"), faults);
    // The paths of all sources, to find duplicates.
    let mut files = Seen::default();
    let sources = path.key("sources");
    for (index, projection) in volume.sources.iter().enumerate() {
        let Some(source) = &projection.source else { continue };
        let path = sources.index(index);
        let path = path.key(source.key());
        match source {
            ProjectionSource::ConfigMap(object) | ProjectionSource::Secret(object) => {
                check_object(&object.name, "name", &object.items, &path, faults);
                for (index, item) in object.items.iter().enumerate() {
                    take(&mut files, &item.path, &path.key("items").index(index).key("path"), faults);
                }
            }
            ProjectionSource::DownwardApi(fields) => {
                check_files(&fields.items, scope, &path, faults);
                for (index, item) in fields.items.iter().enumerate() {
                    take(&mut files, &item.path, &path.key("items").index(index).key("path"), faults);
                }
            }
            ProjectionSource::ServiceAccountToken(token) => {
                check_token(token, scope, &path, faults);
                take(&mut files, &token.path, &path.key("path"), faults);
            }
            ProjectionSource::ClusterTrustBundle(bundle) => {
                file_paths::in_volume(&bundle.path, &path.key("path"), faults);
                take(&mut files, &bundle.path, &path.key("path"), faults);
            }
            // The API server, which signs it, validates its paths.
            ProjectionSource::PodCertificate(_) => {}
        }
    }
}

fn take<'a>(files: &mut Seen<&'a str>, file: &'a str, path: &Path<'_>, faults: &mut Faults) {
    if !file.is_empty() && !files.insert(file) {
        faults.duplicate(path, file);
    }
}

fn check_object(name: &str, field: &str, items: &[KeyToPath], path: &Path<'_>, faults: &mut Faults) {
    if name.is_empty() {
        faults.required(&path.key(field));
    }
    let list = path.key("items");
    for (index, item) in items.iter().enumerate() {
        let path = list.index(index);
        if item.key.is_empty() {
            faults.required(&path.key("key"));
        }
        file_paths::in_volume(&item.path, &path.key("path"), faults);
        check_mode(item.mode, &path.key("mode"), faults);
    }
}

fn check_files(files: &[DownwardApiVolumeFile], scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let list = path.key("items");
    for (index, file) in files.iter().enumerate() {
        let path = list.index(index);
        file_paths::in_volume(&file.path, &path.key("path"), faults);
        check_mode(file.mode, &path.key("mode"), faults);
        match (&file.field_ref, &file.resource_field_ref) {
            (Some(field), None) => {
                field_selectors::check_field(field, FieldTarget::File, &path.key("fieldRef"), faults);
            }
            (None, Some(field)) => {
                field_selectors::check_resource(field, FieldTarget::File, scope, &path.key("resourceFieldRef"), faults);
            }
            (None, None) => faults.required_as(&path, "one of fieldRef and resourceFieldRef"),
            (Some(_), Some(_)) => faults.other(&path, "only one of fieldRef and resourceFieldRef may be given"),
        }
    }
}

fn check_mode(mode: Option<i32>, path: &Path<'_>, faults: &mut Faults) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        faults.out_of_range(path, mode, "must be from 0 to 0777 (octal; 511)");
    }
}

fn check_token(token: &ServiceAccountTokenProjection, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    const MIN_TOKEN_SECONDS: i64 = 10 * 60;
    const MAX_TOKEN_SECONDS: i64 = 1 << 32;
    if scope.spec.service_account_name.is_empty() {
        faults.forbidden(path, "without serviceAccountName");
    }
    if let Some(seconds) =
        token.expiration_seconds.filter(|seconds| !(MIN_TOKEN_SECONDS..=MAX_TOKEN_SECONDS).contains(seconds))
    {
        let wanted = format_args!("must be from {MIN_TOKEN_SECONDS} to {MAX_TOKEN_SECONDS}");
        faults.out_of_range(&path.key("expirationSeconds"), seconds, wanted);
    }
    file_paths::in_volume(&token.path, &path.key("path"), faults);
}
