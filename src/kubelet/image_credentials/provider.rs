//! Credential provider plugins.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::rc::Rc;
use std::time::Duration;

use super::account_tokens::AccountTokens;
use super::keyring::{Keyring, Login, Owner};
use super::location::Location;
use super::provider_response::{InvalidResponse, ResponseCache, parse_provider_response, question};
use super::service_account::{AccountToken, PodAccount};
use crate::platform::apiserver::ApiError;
use crate::platform::config::{CredentialProvider, TokenCacheType};
use crate::platform::host::program::{self, ProgramError};
use crate::platform::rt::{self, Turns};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count, Timed};

#[derive(Debug)]
pub(super) struct Provider {
    config: CredentialProvider,
    program: PathBuf,
    images: Vec<Location>,
    cache: RefCell<ResponseCache>,
    /// Serializes requests about a registry: the next one may find the answer in the cache.
    asking: Rc<Turns>,
    tokens: AccountTokens,
}

/// Why a plugin returned no credentials.
#[derive(Debug)]
enum ProviderError {
    /// The pod's service account is unknown.
    Account(ApiError),
    Answer(InvalidResponse),
    /// The token itself is the password, which must not be cached for other pods.
    Echo,
    /// It exited with an error; its output.
    Failed {
        status: ExitStatus,
        stderr: String,
    },
    Run(ProgramError),
    Token(ApiError),
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(_) => f.write_str("failed to get service account"),
            Self::Answer(error) => error.fmt(f),
            Self::Echo => {
                f.write_str("it returned the service account token as the password, which needs the cacheType Token")
            }
            Self::Token(_) => f.write_str("failed to get service account token"),
            Self::Failed { status, stderr } => write!(f, "{status}: {stderr}"),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Account(error) | Self::Token(error) => Some(error),
            Self::Answer(_) | Self::Echo | Self::Failed { .. } => None,
            Self::Run(error) => error.source(),
        }
    }
}

/// Upstream's timeout.
const CREDENTIAL_PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Most requests at a time, about different registries. A plugin may need tens of megabytes.
const MAX_PLUGIN_REQUESTS: usize = 2;
/// Limit of the logged error output, in bytes.
const MAX_SHOWN_PLUGIN_OUTPUT_BYTES: usize = 400;

impl Provider {
    pub(super) fn new(config: &CredentialProvider, bin_dir: &Path, tokens: AccountTokens) -> Self {
        Self {
            program: bin_dir.join(&config.name),
            images: config.match_images.iter().filter_map(|image| Location::parse(image)).collect(),
            config: config.clone(),
            cache: RefCell::default(),
            asking: Turns::new(MAX_PLUGIN_REQUESTS, 1),
            tokens,
        }
    }

    /// The pod's service account, if the plugin gets its tokens for this repository.
    pub(super) async fn account(&self, repository: &str, pod: &Pod) -> Option<Result<PodAccount, ApiError>> {
        let wanted = self.config.token.as_ref().filter(|_| has_account(pod) && self.covers(repository))?;
        self.tokens.account(pod, wanted).await.transpose()
    }

    fn covers(&self, repository: &str) -> bool {
        self.images.iter().any(|images| images.covers(repository))
    }

    /// Credentials for `repository`; empty if the plugin is not configured for it or fails.
    pub(super) async fn keyring(&self, repository: &str, pod: &Pod) -> Keyring {
        let mut keyring = Keyring::default();
        let needs_account = self.config.token.as_ref().is_some_and(|token| token.is_required);
        if !self.covers(repository) || needs_account && !has_account(pod) {
            return keyring;
        }
        match self.logins(repository, pod).await {
            Ok((logins, owner)) => {
                for registry in keyring.add(logins, &owner) {
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

    async fn logins(&self, repository: &str, pod: &Pod) -> Result<(Vec<(String, Login)>, Owner), ProviderError> {
        let (mut owner, mut key, mut account) = (Owner::Node, String::new(), AccountToken::default());
        if let Some(wanted) = self.config.token.as_ref().filter(|_| has_account(pod)) {
            let service_account = self.tokens.account(pod, wanted).await.map_err(ProviderError::Account)?;
            // The account has not opted in.
            let Some(service_account) = service_account else { return Ok((Vec::new(), owner)) };
            let token =
                self.tokens.token(pod, &service_account, &wanted.audience).await.map_err(ProviderError::Token)?;
            key = service_account.cache_key(pod, wanted.cache, &token);
            owner = Owner::ServiceAccount {
                namespace: pod.metadata.namespace.clone(),
                name: pod.spec.service_account_name.clone(),
                uid: service_account.uid,
            };
            account = AccountToken { token, annotations: service_account.annotations };
        }
        let registry = repository.split('/').next().unwrap_or(repository);
        let cached = || self.cache.borrow().find(repository, &key, rt::now()).map(<[_]>::to_vec);
        if let Some(logins) = cached() {
            return Ok((logins, owner));
        }
        let _turn = self.asking.take(registry).await;
        if let Some(logins) = cached() {
            return Ok((logins, owner));
        }
        let CredentialProvider { api_version, args, env, default_cache_duration, .. } = &self.config;
        let mut command = Command::new(&self.program);
        command.args(args).envs(env.iter().map(|(name, value)| (name, value)));
        let begun = rt::now();
        let ended = program::run(command, question(api_version, repository, &account), CREDENTIAL_PLUGIN_TIMEOUT).await;
        metrics::took(Timed::CredentialPlugins, &[&self.config.name], rt::elapsed(begun));
        let ended = ended.map_err(ProviderError::Run)?;
        if !ended.status.success() {
            let stderr: String =
                String::from_utf8_lossy(&ended.stderr).trim().chars().take(MAX_SHOWN_PLUGIN_OUTPUT_BYTES).collect();
            return Err(ProviderError::Failed { status: ended.status, stderr });
        }
        let response = parse_provider_response(&ended.stdout, api_version).map_err(ProviderError::Answer)?;
        let is_echo = |(_, login): &(String, Login)| !account.token.is_empty() && login.password == account.token;
        let by_token = self.config.token.as_ref().is_some_and(|token| token.cache == TokenCacheType::Token);
        if !by_token && response.logins.iter().any(is_echo) {
            return Err(ProviderError::Echo);
        }
        self.cache.borrow_mut().insert(repository, &key, &response, *default_cache_duration, rt::now());
        Ok((response.logins, owner))
    }
}

/// A static pod has none.
fn has_account(pod: &Pod) -> bool {
    !pod.spec.service_account_name.is_empty()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::platform::rt::TestFolder;

    const PLUGIN: &str = r#"#!/bin/sh
case "$(cat)" in *slow.example*) echo >>"$0.hangs"; exec sleep 1000 ;; esac
echo '{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
  "cacheKeyType": "Registry", "auth": {"fast.example": {"username": "u", "password": "p"}}}'
"#;

    fn provider(folder: &TestFolder, default_cache_duration: Duration) -> Rc<Provider> {
        fs::write(folder.0.join("plugin"), PLUGIN).unwrap();
        fs::set_permissions(folder.0.join("plugin"), fs::Permissions::from_mode(0o755)).unwrap();
        let config = CredentialProvider {
            name: "plugin".to_owned(),
            match_images: vec!["*.example".to_owned(), "*.*.example".to_owned()],
            default_cache_duration,
            api_version: "credentialprovider.kubelet.k8s.io/v1".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            token: None,
        };
        Rc::new(Provider::new(&config, &folder.0, AccountTokens::default()))
    }

    /// The number of logins for a repository, while the plugin hangs `turns` times for the slow ones.
    async fn logins_beside(provider: &Rc<Provider>, slow: &[&str], turns: usize, repository: &str) -> Option<usize> {
        let ask = |repository: &str| {
            let (provider, repository) = (Rc::clone(provider), repository.to_owned());
            async move { provider.logins(&repository, &Pod::default()).await.map_or(0, |(logins, _)| logins.len()) }
        };
        let hanging: Vec<_> = slow.iter().map(|repository| rt::spawn(ask(repository))).collect();
        // The slow registries have their turns before the other one is asked about.
        let hangs = async {
            while fs::read(provider.program.with_extension("hangs")).map_or(0, |lines| lines.len()) < turns {
                rt::sleep(Duration::from_millis(1)).await;
            }
        };
        rt::deadline(Duration::from_secs(20), hangs).await.expect("the plugin is asked");
        let asked = rt::deadline(Duration::from_secs(20), ask(repository)).await.ok();
        // The plugins end in a turn of the executor.
        drop(hanging);
        while Rc::strong_count(provider) > 1 {
            rt::yield_now().await;
        }
        asked
    }

    #[test]
    fn registry_for_which_a_plugin_hangs_delays_no_other_registry() {
        let folder = TestFolder::new("provider-registries");
        let provider = provider(&folder, Duration::ZERO);
        let slow = ["slow.example/0", "slow.example/1", "slow.example/2", "slow.example/3"];
        assert_eq!(rt::block_on(logins_beside(&provider, &slow, 1, "fast.example/a")), Some(1));
    }

    #[test]
    fn cached_answer_needs_no_turn() {
        let folder = TestFolder::new("provider-cache");
        let provider = provider(&folder, Duration::from_secs(3600));
        let slow = ["slow.example/a", "very.slow.example/a"];
        rt::block_on(async {
            assert_eq!(logins_beside(&provider, &[], 0, "fast.example/a").await, Some(1));
            assert_eq!(slow.len(), MAX_PLUGIN_REQUESTS);
            assert_eq!(logins_beside(&provider, &slow, slow.len(), "fast.example/b").await, Some(1));
        });
    }
}
