//! The collection of ClusterTrustBundles, whose API version the server decides.

use super::topic_content::selected;
use crate::platform::apiserver::{ApiError, Client, Collection, Request, Requester};
use crate::state::objects::BundleKey;

/// Why there are no trust bundles.
pub(super) const NO_BUNDLES: &str = "the server has no ClusterTrustBundles";

/// The collection of trust bundles in the newest API version that the server has; `None` if it has none.
pub(super) async fn bundles(client: &Client, key: &BundleKey) -> Result<Option<Collection>, ApiError> {
    let field_selector = match key {
        BundleKey::Named(name) => format!("metadata.name={name}"),
        BundleKey::Signed(signer) => format!("spec.signerName={signer}"),
    };
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let path = format!("/apis/certificates.k8s.io/{version}/clustertrustbundles");
        let first = Request::get(path.as_str()).with_query("limit", "1").requested_by(Requester::Tenant);
        match client.send(&first).await {
            Ok(_) => return Ok(Some(selected(path, field_selector))),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
