//! Flags, configuration files, and the effective configuration.
//!
//! Flags that have a field in `KubeletConfiguration` are merged over the files as one more document. So every value
//! takes the same path: parsed, checked against the schema, merged, and converted to a [`Config`].

mod api_endpoint;
mod cgroups;
mod check;
mod cipher_suite;
mod cluster;
mod configz;
mod coracle_file;
mod credential_providers;
mod device_rules;
mod did_you_mean;
mod dns;
mod duration;
mod effective;
mod eviction;
mod feature_gates;
mod fields;
mod file;
#[macro_use]
mod flag_effect;
mod flag_table;
mod flag_values;
mod flags;
mod health;
mod identity;
mod image_fetch;
mod images;
mod join_file;
mod kept_identity;
mod logs;
mod managers;
mod name_template;
mod node_labels;
mod node_name;
mod offline;
mod pods;
mod process;
mod reporting;
mod reserved;
mod runtime;
mod runtime_profile;
mod schema;
mod server;
mod shutdown;
mod static_pod_url;
mod static_pods;
mod taints;
mod tracing;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use check::Problem;
use coracle_file::CoracleFile;
use flag_values::FlagValues;

pub(crate) use cgroups::{CgroupDriver, MemoryQos, SwapBehavior};
#[cfg(test)]
pub(crate) use cipher_suite::CipherSuite;
pub(crate) use configz::ConfiguredFields;
pub(crate) use coracle_file::{ReenrolmentSettings, SecretName, SyncMode, SyncWindows};
pub(crate) use credential_providers::{CredentialProvider, TokenAttributes, TokenCacheType};
pub(crate) use device_rules::DeviceRule;
pub(crate) use did_you_mean::nearest;
pub(crate) use duration::{go_duration, parse_duration};
pub(crate) use effective::{Config, DEFAULT_CLAIMS_DIR};
pub(crate) use eviction::{Amount, Eviction, Signal, Threshold};
pub(crate) use feature_gates::{FeatureGates, Gate};
pub(crate) use file::FirstDocument;
#[cfg(test)]
pub(crate) use flags::is_flag;
#[cfg(test)]
pub(crate) use identity::Identity;
pub(crate) use identity::ServingIdentity;
pub(crate) use images::{CredentialsVerification, ImageGc};
pub(crate) use join_file::JoinFile;
pub(crate) use kept_identity::{KEPT_IDENTITY, KeptIdentity};
pub(crate) use managers::{CpuOptions, TopologyManager, TopologyPolicy};
pub(crate) use name_template::NameTemplate;
pub(crate) use process::{KernelParameters, LOCAL_SOCKET};
pub(crate) use reporting::Reporting;
pub(crate) use reserved::EnforcedLimits;
pub(crate) use runtime_profile::RuntimeProfile;
pub(crate) use server::{Authorization, ServerSettings, TlsSettings};
pub(crate) use shutdown::ShutdownPhase;
pub(crate) use tracing::{TraceEndpoint, TracingSettings};

use serde_json::Value;

use crate::types::api::leave_out;
use crate::types::api::yaml::ParseError;
use crate::types::error::ErrorChain;

/// What the command line requests.
#[derive(Debug)]
pub(crate) enum Request {
    Help,
    Version,
    Run(Box<Config>, Warnings),
}

/// Warnings to log at startup.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Warnings(pub(crate) Vec<String>);

/// Parses the flags (without the program's name) and reads the files that they name.
pub(crate) fn load(arguments: &[String]) -> Result<Request, Error> {
    let mut flags = flags::parse(arguments).map_err(|flags::BadFlag(line)| Error::Flag(line))?;
    if flags.help {
        return Ok(Request::Help);
    }
    if flags.version {
        return Ok(Request::Version);
    }
    let mut warnings = Warnings::default();
    let mut fields = file::read(flags.config.as_deref(), flags.config_dir.as_deref(), &mut warnings.0)?;
    let mut ineffective = check::ineffective(&fields);
    ineffective.append(&mut flags.ineffective);
    warnings.0.extend(ineffective.warnings());
    warnings.0.append(&mut flags.warnings);
    file::lay_flags_over(&mut fields, std::mem::take(&mut flags.fields));
    let providers = credential_providers(&flags)?;
    let file = coracle_file::read(flags.coracle_config.as_deref())?;
    let CoracleFile { name_template, reenrolment, sync, images, devices, update_lock_limit, api_endpoint } = file;
    if flags.bootstrap_kubeconfig.is_some() && flags.kubeconfig.is_none() {
        let wanted = "requires --kubeconfig, which the node's own credentials are written to";
        return Err(Error::Flag(format!("--bootstrap-kubeconfig: {wanted}")));
    }
    let gates = FeatureGates::read(&fields::Fields(&fields), &mut warnings.0).map_err(Error::Conflict)?;
    warnings.0.extend(unusable_values(&fields::Fields(&fields)));
    let (node_name, name_template) = node_name(&flags, name_template, &mut warnings)?;
    let mut config = Config::new(&flags, &fields, node_name).map_err(Error::Conflict)?;
    let has_tokens = |provider: &CredentialProvider| provider.token.is_some();
    if providers.iter().any(has_tokens) && !gates.is_on(Gate::KubeletServiceAccountTokenForCredentialProviders) {
        let gate = Gate::KubeletServiceAccountTokenForCredentialProviders.name();
        let path = flags.credential_provider_config.clone().unwrap_or_default();
        let fault = format!("requires the feature gate {gate}");
        return Err(Error::Field { path, problem: Problem { path: "tokenAttributes".to_owned(), fault } });
    }
    config.images.credential_providers = providers;
    if !gates.is_on(Gate::KubeletEnsureSecretPulledImages) {
        config.images.credentials_verification = CredentialsVerification::Never;
    }
    if !gates.is_on(Gate::MemoryQos) {
        config.cgroups.memory_qos = None;
    }
    if gates.is_on(Gate::ReduceDefaultCrashLoopBackOffDecay) {
        config.pods.reduce_restart_periods(&fields::Fields(&fields));
    }
    config.gates = gates;
    config.node.template = name_template;
    config.identity.reenrolment = reenrolment;
    config.cluster.reporting.fit(&sync, fields::Fields(&fields).duration("nodeStatusReportFrequency").is_some());
    config.cluster.sync = sync;
    config.images.fetch = images;
    config.devices = devices;
    if api_endpoint.is_some() && config.cluster.kubeconfig.is_none() {
        warnings.0.push("apiEndpoint has no effect without --kubeconfig".to_owned());
    }
    config.api_endpoint = api_endpoint;
    config.update_lock_limit = update_lock_limit.unwrap_or(config.update_lock_limit);
    config.configured = ConfiguredFields::new(&fields, std::mem::take(&mut flags.flags));
    for provider in &config.images.credential_providers {
        // Images that need no credentials, or have others, go on without it; and it may come later.
        let program = config.images.credential_provider_bin_dir.join(&provider.name);
        if !program.is_file() {
            warnings.0.push(format!("credential provider {} is missing: {}", provider.name, program.display()));
        }
    }
    // Pods mount parts of the first, and the runtime writes to the second: both have to mean the same to others.
    let kubeconfigs = config.cluster.kubeconfig.iter_mut().chain(&mut config.identity.bootstrap_kubeconfig);
    let places = [
        &mut config.root_dir,
        &mut config.claims_dir,
        &mut config.logs.pods_dir,
        &mut config.identity.cert_dir,
        &mut config.images.archives,
    ];
    let places = places.into_iter().chain(&mut config.offline.key_file);
    for path in places.chain(kubeconfigs) {
        *path = std::path::absolute(&*path).map_err(|source| Error::Read { path: path.clone(), source })?;
    }
    Ok(Request::Run(Box::new(config), warnings))
}

/// A KubeletConfiguration, as the agent reads it; `None` if the text is something else.
pub(crate) fn configuration(text: &[u8]) -> Option<FirstDocument> {
    file::first_document(text).ok().flatten().filter(FirstDocument::is_configuration)
}

/// What is ignored or has no effect in a KubeletConfiguration without mistakes. The error is one line.
pub(crate) fn check_configuration_text(text: &[u8]) -> Result<Vec<String>, String> {
    let document = file::first_document(text).map_err(|error| ErrorChain(&error).to_string())?;
    let document = document.filter(FirstDocument::is_configuration).ok_or("expected a KubeletConfiguration")?;
    let node_name = host_node_name().unwrap_or_else(|_| "localhost".to_owned());
    let (mistakes, warnings) = check_configuration(document, node_name);
    if mistakes.is_empty() { Ok(warnings) } else { Err(mistakes.join("; ")) }
}

/// Values that the node does without.
fn unusable_values(fields: &fields::Fields<'_>) -> impl Iterator<Item = String> {
    let of_group = [logs::warning(fields), server::warning(fields), tracing::warning(fields)];
    dns::warnings(fields).into_iter().chain(of_group.into_iter().flatten())
}

/// Every mistake in a KubeletConfiguration, and what is ignored in it or has no effect.
pub(crate) fn check_configuration(configuration: FirstDocument, node_name: String) -> (Vec<String>, Vec<String>) {
    let mut mistakes: Vec<String> = Vec::new();
    let FirstDocument { value: mut document, ignored: mut warnings } = configuration;
    // A value with a mistake is left out, so that the next mistake is found.
    while let Err(problem) = check::check_document(&document) {
        let is_left_out = leave_out(&mut document, &problem.path);
        let line = problem.to_string();
        let is_new = !mistakes.iter().any(|earlier| earlier.split(": ").next() == line.split(": ").next());
        if is_new {
            mistakes.push(line);
        }
        if !is_left_out || !is_new || mistakes.len() >= MAX_CONFIG_MISTAKES {
            return (mistakes, warnings);
        }
    }
    let Value::Object(fields) = document else { return (mistakes, warnings) };
    warnings.extend(check::ineffective(&fields).warnings());
    warnings.extend(unusable_values(&fields::Fields(&fields)));
    let gates = FeatureGates::read(&fields::Fields(&fields), &mut warnings).map(drop);
    let settings = Config::new(&FlagValues::default(), &fields, node_name).map(drop);
    mistakes.extend([gates, settings].into_iter().filter_map(Result::err).map(|problem| problem.to_string()));
    (mistakes, warnings)
}

/// Each costs another reading of the configuration, without the field of the one before.
const MAX_CONFIG_MISTAKES: usize = 50;

fn credential_providers(flags: &FlagValues) -> Result<Vec<CredentialProvider>, Error> {
    match (&flags.credential_provider_config, &flags.credential_provider_bin_dir) {
        (Some(path), Some(_)) => credential_providers::read(path),
        (None, None) => Ok(Vec::new()),
        (config, _) => {
            let (one, other) = ("--image-credential-provider-config", "--image-credential-provider-bin-dir");
            let (one, other) = if config.is_some() { (one, other) } else { (other, one) };
            Err(Error::Flag(format!("{one}: requires {other}")))
        }
    }
}

/// The node's name, and the template that has given it.
fn node_name(
    flags: &FlagValues,
    from_file: Option<NameTemplate>,
    warnings: &mut Warnings,
) -> Result<(String, Option<NameTemplate>), Error> {
    if let Some(hostname) = flags.hostname_override.as_deref().filter(|hostname| !hostname.is_empty()) {
        let wanted = "expected a DNS name of letters, digits, '-' and '.'";
        let name = node_name::from_override(hostname);
        let name = name.ok_or_else(|| Error::Flag(format!("--hostname-override: {wanted}, found {hostname:?}")));
        return Ok((name?, None));
    }
    let root_dir = flags.root_dir.as_deref().unwrap_or(Path::new(effective::DEFAULT_ROOT_DIR));
    let template = flags.name_template.clone().or(from_file);
    if template.is_none() {
        // That of a replaced board, or of a template that has been removed.
        let kept = KeptIdentity::read(root_dir).name;
        if !kept.is_empty() {
            return Ok((kept, None));
        }
    }
    if let Some(template) = template {
        let name = kept_identity::name_from(&template, root_dir, &mut warnings.0)?;
        return Ok((name, Some(template)));
    }
    let hostname = hostname().map_err(Error::Hostname)?;
    let name = node_name::from_host(&hostname);
    if name != hostname.trim().to_lowercase() {
        warnings.0.push(format!("the host name {hostname:?} cannot name a node: it is {name} here"));
    }
    Ok((name, None))
}

/// The node's name without `--hostname-override`, and the template that gives it: `given`, or that of the default
/// `coracle.yaml`.
pub(crate) fn default_node_name(
    template: Option<&NameTemplate>,
    root_dir: &Path,
) -> Result<(String, Option<NameTemplate>), Error> {
    let from_file = if template.is_none() { coracle_file::read(None)?.name_template } else { None };
    let flags =
        FlagValues { name_template: template.cloned(), root_dir: Some(root_dir.to_owned()), ..FlagValues::default() };
    node_name(&flags, from_file, &mut Warnings::default())
}

/// The node name for `--hostname-override`; `None` if it is invalid.
pub(crate) fn given_node_name(text: &str) -> Option<String> {
    node_name::from_override(text)
}

/// The default node name.
pub(crate) fn host_node_name() -> io::Result<String> {
    hostname().map(|hostname| node_name::from_host(&hostname))
}

fn hostname() -> io::Result<String> {
    Ok(nix::unistd::gethostname()?.to_string_lossy().into_owned())
}

/// Why the program cannot start: a mistake in a flag or a file.
#[derive(Debug)]
pub(crate) enum Error {
    /// The text names the flag.
    Flag(String),
    Read {
        path: PathBuf,
        source: io::Error,
    },
    Parse {
        path: PathBuf,
        source: ParseError,
    },
    Field {
        path: PathBuf,
        problem: Problem,
    },
    /// Settings that conflict, from any file or flag.
    Conflict(Problem),
    Hostname(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(line) => f.write_str(line),
            Self::Read { path, .. } | Self::Parse { path, .. } => write!(f, "{}", path.display()),
            Self::Field { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Conflict(problem) => write!(f, "{problem}"),
            Self::Hostname(_) => f.write_str("read the host name"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Hostname(source) => Some(source),
            Self::Parse { source, .. } => Some(source),
            Self::Flag(_) | Self::Field { .. } | Self::Conflict(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
