//! Files of OCI artifacts that the node itself wants: programs of the agent, and manifests.

use crate::kubelet::image_archives::image_name::repository;
use crate::kubelet::image_credentials::NodeCredentials;
use crate::kubelet::image_transfer::{ArtifactChoice, ArtifactFetch, FetchedFile};
use crate::platform::registry::Login;
use crate::types::api::Pod;

pub(crate) struct Artifacts {
    pub(crate) fetch: ArtifactFetch,
    pub(crate) credentials: NodeCredentials,
}

/// The scheme of an artifact in a registry.
pub(crate) const ARTIFACT_SCHEME: &str = "oci://";

impl Artifacts {
    /// The files that `choose` returns, with the credentials of the node. The error is one line.
    pub(crate) async fn files(&self, artifact: &str, choose: ArtifactChoice) -> Result<Vec<FetchedFile>, String> {
        let repository = repository(artifact).map_err(|error| error.to_string())?;
        let credentials = self.credentials.find(&repository, &Pod::default()).await;
        let logins = credentials.iter().map(|credential| credential.login.auth_config());
        let logins = logins.map(|auth| Login { username: auth.username, password: auth.password.0 });
        self.fetch.files(artifact, logins.collect(), choose).await
    }
}
