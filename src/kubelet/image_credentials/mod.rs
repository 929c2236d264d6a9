//! Registry credentials: from image pull secrets, node files and credential provider plugins.

mod account_tokens;
mod docker_config;
mod keyring;
mod location;
mod node_files;
mod provider;
mod provider_response;
mod pull_secrets;
mod service_account;

use std::env;
use std::path::{Path, PathBuf};

use crate::platform::apiserver::Client;
use crate::platform::config::Config;
use crate::types::api::Pod;

#[cfg(test)]
pub(crate) use keyring::Login;
pub(crate) use keyring::{Credential, Owner};
pub(crate) use pull_secrets::{PullSecrets, RepositorySecrets};

use account_tokens::AccountTokens;
use node_files::NodeFiles;
use provider::Provider;

/// Parses a credential provider's answer and a Docker configuration, for the fuzz targets.
pub fn check_credentials(text: &[u8]) {
    for version in ["credentialprovider.kubelet.k8s.io/v1", ""] {
        drop(provider_response::parse_provider_response(text, version));
    }
    drop(docker_config::parse(text, docker_config::ConfigFormat::ConfigJson));
    drop(docker_config::parse(text, docker_config::ConfigFormat::Dockercfg));
}

/// Credentials available to every pod of the node.
#[derive(Debug)]
pub(crate) struct NodeCredentials {
    files: NodeFiles,
    providers: Vec<Provider>,
    tokens: AccountTokens,
}

/// A pod's service account; without a uid if the API server could not be asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceAccount {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
}

impl NodeCredentials {
    pub(crate) fn of(config: &Config) -> Self {
        let working_dir = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let home = env::var_os("HOME").map(PathBuf::from);
        Self::new(config, &working_dir, home.as_deref())
    }

    fn new(config: &Config, working_dir: &Path, home: Option<&Path>) -> Self {
        let bin_dir = &config.images.credential_provider_bin_dir;
        let tokens = AccountTokens::default();
        Self {
            files: NodeFiles::new(&config.root_dir, working_dir, home),
            providers: config
                .images
                .credential_providers
                .iter()
                .map(|provider| Provider::new(provider, bin_dir, tokens.clone()))
                .collect(),
            tokens,
        }
    }

    /// The API server, for the tokens of service accounts.
    pub(crate) fn set_client(&self, client: &Client) {
        self.tokens.set_client(client);
    }

    /// The pod's service account, if a provider gets its tokens for this repository.
    pub(crate) async fn service_account(&self, repository: &str, pod: &Pod) -> Option<ServiceAccount> {
        for provider in &self.providers {
            let uid = match provider.account(repository, pod).await {
                None => continue,
                Some(Ok(account)) => Some(account.uid),
                Some(Err(error)) if error.is_retryable() => None,
                Some(Err(_)) => return None,
            };
            let (namespace, name) = (pod.metadata.namespace.clone(), pod.spec.service_account_name.clone());
            return Some(ServiceAccount { namespace, name, uid });
        }
        None
    }

    /// All credentials for `repository`, in the order to try them.
    pub(crate) async fn find(&self, repository: &str, pod: &Pod) -> Vec<Credential> {
        let mut credentials: Vec<Credential> =
            self.files.keyring().await.find(repository).into_iter().cloned().collect();
        for provider in &self.providers {
            credentials.extend(provider.keyring(repository, pod).await.find(repository).into_iter().cloned());
        }
        credentials
    }
}
