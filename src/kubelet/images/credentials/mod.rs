//! Registry credentials: from image pull secrets, node files and credential provider plugins.

mod docker_config;
mod keyring;
mod location;
mod node_files;
mod provider;
mod provider_response;
mod pull_secrets;

use std::env;
use std::path::{Path, PathBuf};

use crate::platform::config::Config;

#[cfg(test)]
pub(crate) use keyring::Login;
pub(crate) use keyring::{Credential, Owner};
pub(crate) use pull_secrets::PullSecrets;

use node_files::NodeFiles;
use provider::Provider;

/// Parses a credential provider's answer and a Docker configuration, for the fuzz targets.
pub fn check_credentials(text: &[u8]) {
    for version in ["credentialprovider.kubelet.k8s.io/v1", ""] {
        drop(provider_response::answer(text, version));
    }
    drop(docker_config::parse(text, docker_config::ConfigFormat::ConfigJson));
    drop(docker_config::parse(text, docker_config::ConfigFormat::Dockercfg));
}

/// Credentials available to every pod of the node.
#[derive(Debug)]
pub(crate) struct NodeCredentials {
    files: NodeFiles,
    providers: Vec<Provider>,
}

impl NodeCredentials {
    pub(crate) fn of(config: &Config) -> Self {
        let working_dir = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let home = env::var_os("HOME").map(PathBuf::from);
        Self::new(config, &working_dir, home.as_deref())
    }

    fn new(config: &Config, working_dir: &Path, home: Option<&Path>) -> Self {
        let bin_dir = &config.images.credential_provider_bin_dir;
        Self {
            files: NodeFiles::new(&config.root_dir, working_dir, home),
            providers: config
                .images
                .credential_providers
                .iter()
                .map(|provider| Provider::new(provider, bin_dir))
                .collect(),
        }
    }

    /// All credentials for `repository`, in the order to try them.
    pub(super) async fn find(&self, repository: &str) -> Vec<Credential> {
        let mut found: Vec<Credential> = self.files.keyring().await.find(repository).into_iter().cloned().collect();
        for provider in &self.providers {
            found.extend(provider.keyring(repository).await.find(repository).into_iter().cloned());
        }
        found
    }
}
