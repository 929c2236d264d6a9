//! The collection of ClusterTrustBundles, whose API version the server decides.

use super::topic_content::selected;
use crate::platform::apiserver::{Client, Collection, Request, Requester};
use crate::platform::config::{FeatureGates, Gate};
use crate::state::objects::BundleKey;

/// The collection of trust bundles in the newest API version that the server has, or why there is none.
pub(super) async fn bundles(client: &Client, gates: &FeatureGates, key: &BundleKey) -> Result<Collection, String> {
    gates.require(Gate::ClusterTrustBundleProjection)?;
    let field_selector = match key {
        BundleKey::Named(name) => format!("metadata.name={name}"),
        BundleKey::Signed(signer) => format!("spec.signerName={signer}"),
    };
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles");
        let first = Request::get(path.as_str()).with_query("limit", "1").requested_by(Requester::Tenant);
        match client.send(&first).await {
            Ok(_) => return Ok(selected(path, field_selector)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("the server has no ClusterTrustBundles".to_owned())
}
