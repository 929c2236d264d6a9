//! Parses the command line as the kubelet does: `--flag value` and `--flag=value`. Pure.

use core::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::check::{asks_nothing, check_value, field, go_bool, wanted};
use super::did_you_mean::nearest;
use super::flag_table::{FLAGS, FlagEffect, FlagOnly};
use super::flag_values::FlagValues;
use super::managers;
use super::node_labels;
use super::schema::{FieldSupport, Kind};
use super::static_pod_url;
use super::taints;

/// An error of the command line: one line that names the flag and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadFlag(pub(super) String);

pub(super) fn parse(arguments: &[String]) -> Result<FlagValues, BadFlag> {
    let mut given = FlagValues::default();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        let (flag, inline) = split(argument)?;
        if flag == "v" && inline.is_none() && !argument.starts_with("--") {
            // klog's -v has a number; a plain -v means more verbosity.
            let number = rest.next_if(|next| next.parse::<u32>().is_ok());
            given.take("v", number.unwrap_or("4"))?;
            continue;
        }
        let kind = kind_of(&flag)?;
        let value = match inline {
            Some(value) => value,
            None if matches!(kind, Kind::Bool) => "true",
            None => rest.next().ok_or_else(|| nothing(&flag, kind))?,
        };
        given.take(&flag, value)?;
    }
    Ok(given)
}

fn nothing(flag: &str, kind: &Kind) -> BadFlag {
    let wanted = match kind {
        Kind::List(kind) => wanted(kind),
        Kind::Map(_) | Kind::Keys(..) => "name=value".to_owned(),
        kind => wanted(kind),
    };
    BadFlag(format!("--{flag}: expected {wanted}, found nothing"))
}

/// Splits an argument into the flag's name as in the table, and its value if it has one.
fn split(argument: &str) -> Result<(String, Option<&str>), BadFlag> {
    let Some(body) = argument.strip_prefix('-').filter(|body| !body.is_empty() && *body != "-") else {
        return Err(BadFlag(format!("unexpected argument {argument:?} (coracle --help lists all flags)")));
    };
    let (long, body) = body.strip_prefix('-').map_or((false, body), |body| (true, body));
    let (name, value) = body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
    // The kubelet accepts underscores for dashes.
    let name = name.replace('_', "-");
    match (long, name.as_str()) {
        (true, _) => Ok((name, value)),
        (false, "v") => Ok((name, value)),
        (false, "h") => Ok(("help".to_owned(), value)),
        (false, _) => match name.strip_prefix('v').filter(|number| number.parse::<u32>().is_ok() && value.is_none()) {
            // -v4
            Some(_) => Ok(("v".to_owned(), body.strip_prefix('v'))),
            None if meaning(&name).is_some() => Err(BadFlag(format!("-{name}: unknown flag (did you mean --{name}?)"))),
            None => Err(BadFlag(format!("-{name}: unknown flag"))),
        },
    }
}

/// Whether this flag exists (without dashes).
#[cfg(test)]
pub(crate) fn is_flag(name: &str) -> bool {
    meaning(name).is_some()
}

fn meaning(name: &str) -> Option<&'static FlagEffect> {
    FLAGS.binary_search_by_key(&name, |(flag, _)| flag).ok().and_then(|at| FLAGS.get(at)).map(|(_, meaning)| meaning)
}

fn kind_of(name: &str) -> Result<&'static Kind, BadFlag> {
    match meaning(name) {
        Some(FlagEffect::Field(path)) => Ok(field(path).map_or(&Kind::Text, |field| &field.kind)),
        Some(FlagEffect::Own(own)) => Ok(own.kind()),
        Some(FlagEffect::NotYet(kind) | FlagEffect::Gone(kind, _) | FlagEffect::Refused(kind)) => Ok(kind),
        None => {
            let near = nearest(name, FLAGS.iter().map(|(flag, _)| *flag));
            let hint = near.map(|near| format!(" (did you mean --{near}?)")).unwrap_or_default();
            Err(BadFlag(format!("--{name}: unknown flag{hint}")))
        }
    }
}

impl FlagValues {
    fn take(&mut self, flag: &str, text: &str) -> Result<(), BadFlag> {
        let kind = kind_of(flag)?;
        let value = value(kind, text);
        let not_yet = check_value(kind, &value);
        let not_yet = not_yet.map_err(|problem| BadFlag(format!("--{flag}{}: {}", problem.path, problem.fault)))?;
        self.not_yet.extend(not_yet.into_iter().map(|field| format!("--{flag}={field}")));
        let shown = if flag == "manifest-url-header" { "CLASSIFIED" } else { text };
        self.flags.push((flag.to_owned(), shown.to_owned()));
        let silent = asks_nothing(kind, &value);
        match meaning(flag) {
            Some(FlagEffect::Field(path)) => {
                match field(path).map(|field| field.standing) {
                    Some(FieldSupport::NotYet) if !silent => self.not_yet.push(format!("--{flag}")),
                    Some(FieldSupport::Refused) if !silent => return Err(BadFlag(format!("--{flag}: not supported"))),
                    _ => {}
                }
                set(&mut self.fields, path, value);
            }
            Some(FlagEffect::Own(own)) => self.take_own(*own, flag, text, &value)?,
            Some(FlagEffect::NotYet(_)) if !silent => self.not_yet.push(format!("--{flag}")),
            Some(FlagEffect::Gone(_, why)) => self.warnings.push(format!("--{flag} has no effect: {why}")),
            Some(FlagEffect::Refused(_)) if !silent => return Err(BadFlag(format!("--{flag}: not supported"))),
            Some(FlagEffect::NotYet(_) | FlagEffect::Refused(_)) | None => {}
        }
        Ok(())
    }

    fn take_own(&mut self, own: FlagOnly, flag: &str, text: &str, value: &Value) -> Result<(), BadFlag> {
        let path = || (!text.is_empty()).then(|| PathBuf::from(text));
        match own {
            FlagOnly::BootstrapKubeconfig => self.bootstrap_kubeconfig = path(),
            FlagOnly::Kubeconfig => self.kubeconfig = path(),
            FlagOnly::CertDir => self.cert_dir = path(),
            FlagOnly::CloudProvider => self.external_cloud = !text.is_empty(),
            FlagOnly::Config => self.config = path(),
            FlagOnly::ConfigDir => self.config_dir = path(),
            FlagOnly::CoracleConfig => self.coracle_config = path(),
            FlagOnly::Help => self.help = *value == Value::Bool(true),
            FlagOnly::HostnameOverride => self.hostname_override = Some(text.to_owned()),
            FlagOnly::ImageArchives => self.image_archives = path(),
            FlagOnly::ImageCredentialProviderBinDir => self.credential_provider_bin_dir = path(),
            FlagOnly::ImageCredentialProviderConfig => self.credential_provider_config = path(),
            FlagOnly::LeaveKernelParameters => self.leave_kernel_parameters = *value == Value::Bool(true),
            FlagOnly::LocalSocket => self.local_socket = path(),
            FlagOnly::LockFile => self.lock_file = path(),
            FlagOnly::ManifestPlainSignatures => self.manifest_plain_signatures = *value == Value::Bool(true),
            FlagOnly::ManifestPublicKey => self.manifest_public_key = path(),
            FlagOnly::ManifestUrlCaFile => self.manifest_url_ca_file = path(),
            FlagOnly::ManifestUrlHeader => static_pod_url::add_headers(&mut self.fields, text)
                .map_err(|fault| BadFlag(format!("--{flag}: {fault}")))?,
            FlagOnly::NodeIp => self.node_ips = node_ips(text)?,
            FlagOnly::NodeLabels => {
                let more = node_labels::parse(text).map_err(|fault| BadFlag(format!("--{flag}: {fault}")))?;
                more.into_iter().for_each(|(key, value)| drop(self.node_labels.insert(&key, value)));
            }
            // The schema has checked that these are an address and a port.
            FlagOnly::PageAddress => self.page_address = text.parse().ok(),
            FlagOnly::PagePort => self.page_port = text.parse().unwrap_or_default(),
            // An empty value disables the key.
            FlagOnly::OfflineKeyFile => self.offline_key_file = Some(PathBuf::from(text)),
            FlagOnly::OfflinePlainSecrets => self.offline_plain_secrets = *value == Value::Bool(true),
            FlagOnly::RegisterSchedulable => self.unschedulable = *value == Value::Bool(false),
            FlagOnly::RegisterWithTaints => {
                let taints = taints::parse(text).map_err(|fault| BadFlag(format!("--{flag}: {fault}")))?;
                set(&mut self.fields, taints::PATH, taints);
            }
            FlagOnly::ReservedMemory => {
                let more =
                    managers::parse_reserved_memory(text).map_err(|fault| BadFlag(format!("--{flag}: {fault}")))?;
                set(&mut self.fields, managers::RESERVED_MEMORY, more);
            }
            FlagOnly::RootDir => self.root_dir = path(),
            FlagOnly::EvictStaticPods => self.evict_static_pods = *value == Value::Bool(true),
            FlagOnly::StrictImagePullPolicy => self.strict_image_pull_policy = *value == Value::Bool(true),
            FlagOnly::Version => self.version = *value == Value::Bool(true),
            FlagOnly::WatchdogDevice => self.watchdog_device = path(),
        }
        Ok(())
    }
}

/// One address, or one per family; the schema has checked that they are addresses.
fn node_ips(text: &str) -> Result<Vec<IpAddr>, BadFlag> {
    let ips: Vec<IpAddr> = parts(text).filter_map(|ip| ip.parse().ok()).collect();
    let one_of_each = match ips.as_slice() {
        [] | [_] => true,
        [first, second] => first.is_ipv4() != second.is_ipv4(),
        _ => false,
    };
    let fault = "expected one address, or one of each family";
    if one_of_each { Ok(ips) } else { Err(BadFlag(format!("--node-ip: {fault}, found {text:?}"))) }
}

/// Converts `text` to a value of `kind`; an invalid value stays a string, which the check refuses.
fn value(kind: &Kind, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match kind {
        Kind::Bool => go_bool(text).map_or_else(string, Value::Bool),
        Kind::Int(..) => text.parse::<i64>().map_or_else(|_| string(), Value::from),
        Kind::Number(..) => text.parse::<f64>().map_or_else(|_| string(), Value::from),
        Kind::List(kind) => parts(text).map(|part| value(kind, part)).collect(),
        Kind::Map(kind) | Kind::Keys(_, kind) => {
            let mut map = Map::new();
            for part in parts(text) {
                // Thresholds are written with their comparison: memory.available<100Mi.
                let (name, text) = part.split_once(['=', '<']).unwrap_or((part, ""));
                map.insert(name.trim().to_owned(), value(kind, text.trim()));
            }
            Value::Object(map)
        }
        // Its fields as in --cpu-manager-policy-options.
        Kind::Object(_) => value(&Kind::Map(&Kind::Text), text),
        Kind::Attribute
        | Kind::AnyDuration
        | Kind::BoolText
        | Kind::Cpus
        | Kind::Duration(..)
        | Kind::Endpoint
        | Kind::Ip
        | Kind::LogDuration
        | Kind::Path
        | Kind::Percent
        | Kind::Quantity
        | Kind::Sysctl
        | Kind::Text
        | Kind::Threshold
        | Kind::Word(_) => string(),
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Sets the value at a dotted path. A repeated flag adds to lists and maps, and replaces anything else.
fn set(fields: &mut Map<String, Value>, path: &str, value: Value) {
    let Some((name, rest)) = path.split_once('.') else {
        match (fields.get_mut(path), value) {
            (Some(Value::Array(before)), Value::Array(more)) => before.extend(more),
            (Some(Value::Object(before)), Value::Object(more)) => before.extend(more),
            (_, value) => {
                fields.insert(path.to_owned(), value);
            }
        }
        return;
    };
    let inner = fields.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(inner) = inner {
        set(inner, rest, value);
    }
}
