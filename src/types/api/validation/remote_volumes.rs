//! Validates remote volumes that a pod defines inline: iSCSI, Fibre Channel, FlexVolume, and in-tree types that CSI
//! drivers have replaced. Pure.

use serde_json::Value;

use super::faults::Faults;
use super::file_paths;
use crate::types::api::VolumeSource;
use crate::types::api::decode::Path;

/// Checks the object under the key of `source`.
pub(super) fn check(source: &VolumeSource, fields: &Value, path: &Path<'_>, faults: &mut Faults) {
    for field in required(source.key()) {
        if is_empty(fields.get(field)) {
            faults.required(&path.key(field));
        }
    }
    match source {
        VolumeSource::Fc(_) => check_fc(fields, path, faults),
        VolumeSource::FlexVolume(_) => check_flex_volume(fields, path, faults),
        VolumeSource::GitRepo(_) => {
            file_paths::descending(text(fields, "directory"), &path.key("directory"), faults);
        }
        VolumeSource::Iscsi(_) => check_iscsi(fields, path, faults),
        _ => {}
    }
}

fn required(source: &str) -> &'static [&'static str] {
    match source {
        "awsElasticBlockStore" | "cinder" | "portworxVolume" => &["volumeID"],
        "azureDisk" => &["diskName", "diskURI"],
        "azureFile" => &["secretName", "shareName"],
        "cephfs" => &["monitors"],
        "flexVolume" => &["driver"],
        "gcePersistentDisk" => &["pdName"],
        "gitRepo" => &["repository"],
        "glusterfs" => &["endpoints", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "photonPersistentDisk" => &["pdID"],
        "quobyte" => &["registry", "volume"],
        "rbd" => &["monitors", "image"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        "storageos" => &["volumeName"],
        "vsphereVolume" => &["volumePath"],
        _ => &[],
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn text<'a>(fields: &'a Value, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn check_lun(lun: Option<&Value>, path: &Path<'_>, faults: &mut Faults) {
    if let Some(lun) = lun.and_then(Value::as_i64).filter(|lun| !(0..=255).contains(lun)) {
        faults.out_of_range(path, lun, "must be from 0 to 255");
    }
}

fn check_iscsi(fields: &Value, path: &Path<'_>, faults: &mut Faults) {
    for field in ["iqn", "initiatorName"] {
        let name = text(fields, field);
        if !name.is_empty() && !is_iscsi_name(name) {
            let wanted = "must be an iSCSI name such as iqn.2001-04.com.example:disk, eui.<16 hex digits> \
                          or naa.<32 hex digits>";
            faults.invalid(&path.key(field), name, wanted);
        }
    }
    check_lun(fields.get("lun"), &path.key("lun"), faults);
    let chap = ["chapAuthDiscovery", "chapAuthSession"];
    let wants_secret = chap.iter().any(|field| fields.get(field).and_then(Value::as_bool) == Some(true));
    if wants_secret && is_empty(fields.get("secretRef")) {
        faults.required(&path.key("secretRef"));
    }
}

/// RFC 3721: an `iqn.` name (year, month, reversed domain), an `eui.` name or a `naa.` name.
fn is_iscsi_name(name: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let letters_and_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match name.split_once('.') {
        Some(("iqn", rest)) => {
            let Some((date, rest)) = rest.split_once('.') else { return false };
            let Some((authority, disk)) = rest.split_once(':') else { return false };
            let in_authority = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
                && !authority.is_empty()
                && authority.bytes().all(in_authority)
                && !disk.is_empty()
                && !disk.contains([',', ';', '*', '&', '$', '|'])
                && !disk.contains(char::is_whitespace)
        }
        Some(("eui", rest)) => rest.len() == 16 && letters_and_digits(rest),
        Some(("naa", rest)) => rest.len() == 32 && letters_and_digits(rest),
        _ => false,
    }
}

fn check_fc(fields: &Value, path: &Path<'_>, faults: &mut Faults) {
    match (is_empty(fields.get("targetWWNs")), is_empty(fields.get("wwids"))) {
        (true, true) => faults.required_as(path, "one of targetWWNs and wwids"),
        (false, false) => faults.other(path, "only one of targetWWNs and wwids may be given"),
        (false, true) if fields.get("lun").is_none_or(Value::is_null) => {
            faults.required_as(&path.key("lun"), "targetWWNs are given");
        }
        (false, true) => check_lun(fields.get("lun"), &path.key("lun"), faults),
        (true, false) => {}
    }
}

fn check_flex_volume(fields: &Value, path: &Path<'_>, faults: &mut Faults) {
    let options = fields.get("options").and_then(Value::as_object);
    for key in options.into_iter().flat_map(|options| options.keys()) {
        let domain = key.split_once('/').map_or(key.as_str(), |(domain, _)| domain).to_ascii_lowercase();
        let reserved =
            |suffix: &str| domain.strip_suffix(suffix).is_some_and(|before| before.is_empty() || before.ends_with('.'));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            faults.invalid(&path.key("options"), key, "kubernetes.io and k8s.io are reserved");
        }
    }
}
