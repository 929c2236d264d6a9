//! Parses the command line as the kubelet does: `--flag value` and `--flag=value`. Pure.

use core::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};

use super::check::{asks_nothing, check_value, field, go_bool, wanted};
use super::did_you_mean::nearest;
use super::flag_effect::FlagEffect;
use super::flag_table::FLAGS;
use super::flag_values::FlagValues;
use super::managers;
use super::node_labels;
use super::runtime_profile::RuntimeProfile;
use super::schema::{FieldSupport, Kind};
use super::static_pod_url;
use super::taints;
use crate::types::decimal::parse_decimal;

/// An error of the command line: one line that names the flag and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadFlag(pub(super) String);

pub(super) fn parse(arguments: &[String]) -> Result<FlagValues, BadFlag> {
    let mut flags = FlagValues::default();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        let (flag, inline) = split(argument)?;
        if flag == "v" && inline.is_none() && !argument.starts_with("--") {
            // klog's -v has a number; a plain -v means more verbosity.
            let number = rest.next_if(|next| next.parse::<u32>().is_ok());
            flags.take("v", number.unwrap_or("4"))?;
            continue;
        }
        let kind = kind_of(&flag)?;
        let value = match inline {
            Some(value) => value,
            None if matches!(kind, Kind::Bool) => "true",
            None => rest.next().ok_or_else(|| nothing(&flag, kind))?,
        };
        flags.take(&flag, value)?;
    }
    Ok(flags)
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
            None if effect(&name).is_some() => Err(BadFlag(format!("-{name}: unknown flag (did you mean --{name}?)"))),
            None => Err(BadFlag(format!("-{name}: unknown flag"))),
        },
    }
}

/// Whether this flag exists (without dashes).
#[cfg(test)]
pub(crate) fn is_flag(name: &str) -> bool {
    effect(name).is_some()
}

fn effect(name: &str) -> Option<&'static FlagEffect> {
    FLAGS.iter().find(|(flag, _)| *flag == name).map(|(_, effect)| effect)
}

fn kind_of(name: &str) -> Result<&'static Kind, BadFlag> {
    match effect(name) {
        Some(FlagEffect::Field(path)) => Ok(field(path).map_or(&Kind::Text, |field| &field.kind)),
        Some(FlagEffect::Path(_)) => Ok(&Kind::Path),
        Some(FlagEffect::Switch(_)) => Ok(&Kind::Bool),
        Some(
            FlagEffect::Own(kind, _) | FlagEffect::NotYet(kind) | FlagEffect::Gone(kind, _) | FlagEffect::Refused(kind),
        ) => Ok(kind),
        None => {
            let near = nearest(name, FLAGS.iter().map(|(flag, _)| *flag));
            let hint = near.map(|near| format!(" (did you mean --{near}?)")).unwrap_or_default();
            Err(BadFlag(format!("--{name}: unknown flag{hint}")))
        }
    }
}

/// Flags whose values are not shown.
const SECRET_FLAGS: [&str; 2] = ["manifest-url-header", "storage-driver-password"];

impl FlagValues {
    fn take(&mut self, flag: &str, text: &str) -> Result<(), BadFlag> {
        let kind = kind_of(flag)?;
        let value = value(kind, text);
        let inside = check_value(kind, &value);
        let inside = inside.map_err(|problem| BadFlag(format!("--{flag}{}: {}", problem.path, problem.fault)))?;
        self.ineffective.not_yet.extend(inside.not_yet.into_iter().map(|field| format!("--{flag}={field}")));
        let shown = if SECRET_FLAGS.contains(&flag) { "CLASSIFIED" } else { text };
        self.flags.push((flag.to_owned(), shown.to_owned()));
        let silent = asks_nothing(kind, &value);
        match effect(flag) {
            Some(FlagEffect::Field(path)) => {
                if let Some(field) = field(path) {
                    if field.standing == FieldSupport::Refused && !silent {
                        return Err(BadFlag(format!("--{flag}: not supported")));
                    }
                    self.ineffective.note(field, &value, format!("--{flag}"));
                }
                set(&mut self.fields, path, value);
            }
            Some(FlagEffect::Path(path)) => *path(self) = (!text.is_empty()).then(|| PathBuf::from(text)),
            Some(FlagEffect::Switch(switch)) => *switch(self) = value == Value::Bool(true),
            Some(FlagEffect::Own(_, set)) => {
                set(self, text).map_err(|fault| BadFlag(format!("--{flag}: {fault}")))?;
            }
            Some(FlagEffect::NotYet(_)) if !silent => self.ineffective.not_yet.push(format!("--{flag}")),
            Some(FlagEffect::Gone(_, why)) => self.warnings.push(format!("--{flag} has no effect: {why}")),
            Some(FlagEffect::Refused(_)) if !silent => return Err(BadFlag(format!("--{flag}: not supported"))),
            Some(FlagEffect::NotYet(_) | FlagEffect::Refused(_)) | None => {}
        }
        Ok(())
    }
}

/// What flags without a field set. The schema has checked that an address and a number are one.
impl FlagValues {
    pub(super) fn set_external_cloud(&mut self, text: &str) -> Result<(), String> {
        self.external_cloud = !text.is_empty();
        Ok(())
    }

    pub(super) fn set_hostname_override(&mut self, text: &str) -> Result<(), String> {
        self.hostname_override = Some(text.to_owned());
        Ok(())
    }

    pub(super) fn set_join_file(&mut self, text: &str) -> Result<(), String> {
        self.join_file = Some((!text.is_empty()).then(|| PathBuf::from(text)));
        Ok(())
    }

    pub(super) fn set_name_template(&mut self, text: &str) -> Result<(), String> {
        self.name_template = Some(text.parse()?);
        Ok(())
    }

    pub(super) fn add_url_headers(&mut self, text: &str) -> Result<(), String> {
        static_pod_url::add_headers(&mut self.fields, text)
    }

    /// One address, or one per family.
    pub(super) fn set_node_ips(&mut self, text: &str) -> Result<(), String> {
        let ips: Vec<IpAddr> = parts(text).filter_map(|ip| ip.parse().ok()).collect();
        let one_of_each = match ips.as_slice() {
            [] | [_] => true,
            [first, second] => first.is_ipv4() != second.is_ipv4(),
            _ => false,
        };
        if !one_of_each {
            return Err(format!("expected one address, or one of each family, found {text:?}"));
        }
        self.node_ips = ips;
        Ok(())
    }

    pub(super) fn add_node_labels(&mut self, text: &str) -> Result<(), String> {
        let more = node_labels::parse(text)?;
        more.into_iter().for_each(|(key, value)| drop(self.node_labels.insert(&key, value)));
        Ok(())
    }

    pub(super) fn set_page_address(&mut self, text: &str) -> Result<(), String> {
        self.page_address = text.parse().ok();
        Ok(())
    }

    pub(super) fn set_page_port(&mut self, text: &str) -> Result<(), String> {
        self.page_port = text.parse().unwrap_or_default();
        Ok(())
    }

    /// An empty value disables the key.
    pub(super) fn set_offline_key_file(&mut self, text: &str) -> Result<(), String> {
        self.offline_key_file = Some(PathBuf::from(text));
        Ok(())
    }

    pub(super) fn set_runtime_cgroups(&mut self, text: &str) -> Result<(), String> {
        self.runtime_cgroups = text.to_owned();
        Ok(())
    }

    pub(super) fn set_runtime_profile(&mut self, text: &str) -> Result<(), String> {
        self.runtime_profile = if text == "lean" { RuntimeProfile::Lean } else { RuntimeProfile::Default };
        Ok(())
    }

    pub(super) fn set_schedulable(&mut self, text: &str) -> Result<(), String> {
        self.unschedulable = go_bool(text) == Some(false);
        Ok(())
    }

    pub(super) fn add_taints(&mut self, text: &str) -> Result<(), String> {
        set(&mut self.fields, taints::REGISTER_WITH_TAINTS_FIELD, taints::parse(text)?);
        Ok(())
    }

    pub(super) fn add_reserved_memory(&mut self, text: &str) -> Result<(), String> {
        set(&mut self.fields, managers::RESERVED_MEMORY_FIELD, managers::parse_reserved_memory(text)?);
        Ok(())
    }
}

/// Converts `text` to a value of `kind`; an invalid value stays a string, which the check refuses.
fn value(kind: &Kind, text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match kind {
        Kind::Bool => go_bool(text).map_or_else(string, Value::Bool),
        Kind::Int(..) => text.parse::<i64>().map_or_else(|_| string(), Value::from),
        Kind::Number(..) => parse_decimal(text).map_or_else(string, Value::from),
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
        Kind::Object(_) | Kind::Options(_) => value(&Kind::Map(&Kind::Text), text),
        Kind::AbsolutePath
        | Kind::Attribute
        | Kind::AnyDuration
        | Kind::BoolText
        | Kind::CipherSuite
        | Kind::Cpus
        | Kind::Duration(..)
        | Kind::Endpoint
        | Kind::Ip
        | Kind::LogDuration
        | Kind::AnyQuantity
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
