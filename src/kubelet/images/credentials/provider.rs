//! Credential provider plugins.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::keyring::{Keyring, Login, Owner};
use super::location::Location;
use super::provider_response::{InvalidResponse, ResponseCache, answer, question};
use crate::platform::config::CredentialProvider;
use crate::platform::host::program::{self, ProgramError};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count, Timed};

#[derive(Debug)]
pub(super) struct Provider {
    config: CredentialProvider,
    program: PathBuf,
    images: Vec<Location>,
    cache: RefCell<ResponseCache>,
    /// Serializes requests: the next one may find the answer in the cache.
    asking: rt::Semaphore,
}

/// Why a plugin returned no credentials.
#[derive(Debug)]
enum ProviderError {
    Answer(InvalidResponse),
    /// It exited with an error; its output.
    Failed {
        status: ExitStatus,
        said: String,
    },
    Run(ProgramError),
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(error) => error.fmt(f),
            Self::Failed { status, said } => write!(f, "{status}: {said}"),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Answer(_) | Self::Failed { .. } => None,
            Self::Run(error) => error.source(),
        }
    }
}

/// Upstream's timeout.
const LIMIT: Duration = Duration::from_secs(60);
/// Limit of the logged error output, in bytes.
const SHOWN: usize = 400;

impl Provider {
    pub(super) fn new(config: &CredentialProvider, bin_dir: &Path) -> Self {
        Self {
            program: bin_dir.join(&config.name),
            images: config.match_images.iter().filter_map(|image| Location::parse(image)).collect(),
            config: config.clone(),
            cache: RefCell::default(),
            asking: rt::Semaphore::new(1),
        }
    }

    /// Credentials for `repository`; empty if the plugin is not configured for it or fails.
    pub(super) async fn keyring(&self, repository: &str) -> Keyring {
        let mut keyring = Keyring::default();
        // Service account tokens for plugins are not supported without a cluster.
        if self.config.requires_service_account || !self.images.iter().any(|images| images.covers(repository)) {
            return keyring;
        }
        match self.logins(repository).await {
            Ok(logins) => {
                for registry in keyring.add(logins, &Owner::Node) {
                    log!(
                        warn,
                        "credential provider returned invalid registry",
                        provider = self.config.name,
                        registry = registry
                    );
                }
            }
            Err(error) => {
                metrics::count(Count::CredentialPluginErrors, &[&self.config.name]);
                log!(
                    warn,
                    "failed to get credentials from provider",
                    provider = self.config.name,
                    image = repository,
                    error = ErrorChain(&error)
                );
            }
        }
        keyring
    }

    async fn logins(&self, repository: &str) -> Result<Vec<(String, Login)>, ProviderError> {
        let _turn = self.asking.acquire().await;
        if let Some(logins) = self.cache.borrow().find(repository, rt::now()) {
            return Ok(logins.to_vec());
        }
        let CredentialProvider { api_version, args, env, default_cache_duration, .. } = &self.config;
        let mut command = Command::new(&self.program);
        command.args(args).envs(env.iter().map(|(name, value)| (name, value)));
        let begun = rt::now();
        let ended = program::run(command, question(api_version, repository), LIMIT).await;
        metrics::took(Timed::CredentialPlugins, &[&self.config.name], rt::elapsed(begun));
        let ended = ended.map_err(ProviderError::Run)?;
        if !ended.status.success() {
            let said: String = String::from_utf8_lossy(&ended.stderr).trim().chars().take(SHOWN).collect();
            return Err(ProviderError::Failed { status: ended.status, said });
        }
        let answer = answer(&ended.stdout, api_version).map_err(ProviderError::Answer)?;
        self.cache.borrow_mut().insert(repository, &answer, *default_cache_duration, rt::now());
        Ok(answer.logins)
    }
}
