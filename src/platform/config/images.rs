//! Image credentials verification and image garbage collection. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::check::{Problem, conflict};
use super::credential_providers::CredentialProvider;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::image_fetch::FetchSettings;

/// Images: `serializeImagePulls`, `maxParallelImagePulls`, `registryPullQPS`, `registryBurst`,
/// `imagePullCredentialsVerificationPolicy`, `preloadedImagesVerificationAllowlist` and the fields of [`ImageGc`];
/// `--image-credential-provider-config`, `--image-credential-provider-bin-dir`, `--image-archives` and
/// `--strict-image-pull-policy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageSettings {
    pub(crate) serialize_pulls: bool,
    /// `None`: no bound, unless pulls are serialized.
    pub(crate) max_parallel_pulls: Option<u32>,
    /// Pulls per second; 0 means no limit.
    pub(crate) registry_pull_qps: u32,
    pub(crate) registry_burst: u32,
    /// `Always` fails while the registry is unreachable, even if the image is present.
    pub(crate) strict_pull_policy: bool,
    pub(crate) credential_providers: Vec<CredentialProvider>,
    /// The directory of the providers' programs.
    pub(crate) credential_provider_bin_dir: PathBuf,
    pub(crate) credentials_verification: CredentialsVerification,
    pub(crate) gc: ImageGc,
    /// A directory of archives whose images are imported into the runtime.
    pub(crate) archives: PathBuf,
    /// From the file of `--coracle-config`.
    pub(crate) fetch: FetchSettings,
}

/// `imagePullCredentialsVerificationPolicy`: which present images a pod may use without credentials that have pulled them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum CredentialsVerification {
    /// Every image that is present may be used.
    Never,
    /// Images that this kubelet did not pull may be used.
    #[default]
    NeverForPreloaded,
    /// Images with these names may be used; `registry.example.com/team/*` is a prefix.
    NeverFor(Vec<String>),
    Always,
}

/// When to remove unused images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageGc {
    /// Disk usage in percent at which garbage collection starts.
    pub(crate) high: u8,
    /// Disk usage in percent at which garbage collection stops.
    pub(crate) low: u8,
    /// Minimum age of an image that is removed to free space.
    pub(crate) min_age: Duration,
    /// Age at which an unused image is removed regardless of space; zero: never.
    pub(crate) max_age: Duration,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            serialize_pulls: true,
            max_parallel_pulls: None,
            registry_pull_qps: 5,
            registry_burst: 10,
            strict_pull_policy: false,
            credential_providers: Vec::new(),
            credential_provider_bin_dir: PathBuf::new(),
            credentials_verification: CredentialsVerification::default(),
            gc: ImageGc::default(),
            archives: PathBuf::from("/var/lib/kubelet/coracle/images"),
            fetch: FetchSettings::default(),
        }
    }
}

impl Default for ImageGc {
    fn default() -> Self {
        Self { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: Duration::ZERO }
    }
}

/// The fields and flags; the caller adds `credential_providers`, which have a file of their own.
pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues, root_dir: &Path) -> Result<ImageSettings, Problem> {
    let mut images = ImageSettings {
        strict_pull_policy: flags.strict_image_pull_policy,
        credential_provider_bin_dir: flags.credential_provider_bin_dir.clone().unwrap_or_default(),
        archives: flags.image_archives.clone().unwrap_or_else(|| root_dir.join("coracle/images")),
        max_parallel_pulls: fields.count("maxParallelImagePulls"),
        ..ImageSettings::default()
    };
    let parallel = images.max_parallel_pulls.filter(|pulls| *pulls > 1);
    images.serialize_pulls = fields.bool("serializeImagePulls").unwrap_or(parallel.is_none());
    fields.replace("registryPullQPS", Fields::count, &mut images.registry_pull_qps);
    fields.replace("registryBurst", Fields::positive, &mut images.registry_burst);
    if let Some(pulls) = parallel.filter(|_| images.serialize_pulls) {
        let fault = format!("expected false with maxParallelImagePulls {pulls}, found true");
        return Err(conflict("serializeImagePulls", fault));
    }
    images.gc = image_gc(fields)?;
    images.credentials_verification = credentials_verification(fields)?;
    Ok(images)
}

fn image_gc(fields: &Fields<'_>) -> Result<ImageGc, Problem> {
    let percent = |path: &str| fields.int(path).and_then(|percent| u8::try_from(percent).ok());
    let mut gc = ImageGc::default();
    gc.high = percent("imageGCHighThresholdPercent").unwrap_or(gc.high);
    gc.low = percent("imageGCLowThresholdPercent").unwrap_or(gc.low);
    fields.replace("imageMinimumGCAge", Fields::duration, &mut gc.min_age);
    fields.replace("imageMaximumGCAge", Fields::duration, &mut gc.max_age);
    if gc.low >= gc.high {
        let fault = format!("expected less than imageGCHighThresholdPercent {}, found {}", gc.high, gc.low);
        return Err(conflict("imageGCLowThresholdPercent", fault));
    }
    if !gc.max_age.is_zero() && gc.max_age <= gc.min_age {
        return Err(conflict("imageMaximumGCAge", "expected more than imageMinimumGCAge".to_owned()));
    }
    Ok(gc)
}

fn credentials_verification(fields: &Fields<'_>) -> Result<CredentialsVerification, Problem> {
    let allowlist = fields.at("preloadedImagesVerificationAllowlist").and_then(Value::as_array);
    let allowlist: Vec<String> =
        allowlist.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect();
    let policy = fields.text("imagePullCredentialsVerificationPolicy").unwrap_or("NeverVerifyPreloadedImages");
    if !allowlist.is_empty() && policy != "NeverVerifyAllowlistedImages" {
        let fault = "requires imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages".to_owned();
        return Err(conflict("preloadedImagesVerificationAllowlist", fault));
    }
    if let Some((index, pattern)) = allowlist.iter().enumerate().find(|(_, pattern)| !is_image_pattern(pattern)) {
        let fault =
            format!("expected the name of an image without tag and digest, or its beginning and /*, found {pattern:?}");
        return Err(conflict(&format!("preloadedImagesVerificationAllowlist[{index}]"), fault));
    }
    Ok(match policy {
        "NeverVerify" => CredentialsVerification::Never,
        "NeverVerifyAllowlistedImages" => CredentialsVerification::NeverFor(allowlist),
        "AlwaysVerify" => CredentialsVerification::Always,
        _ => CredentialsVerification::NeverForPreloaded,
    })
}

/// `registry.example.com/team/app`, or a prefix of it and `/*`.
fn is_image_pattern(pattern: &str) -> bool {
    let name = pattern.strip_suffix("/*").unwrap_or(pattern);
    let last = name.rsplit('/').next().unwrap_or_default();
    let is_registry = !name.contains('/') && name.len() < pattern.len();
    !name.is_empty() && !name.contains(['*', '@', ' ']) && !name.ends_with('/') && (is_registry || !last.contains(':'))
}
