//! Calls to a plugin of a DRA driver, in the version that it offers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::error::DraError;
use super::running_calls::RunningCalls;
use super::v1::{Claim, ClaimsRequest, PrepareResponse, SERVICES, UnprepareResponse};
use crate::platform::rpc::{Client, Error};
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::protocol::protobuf::{Message, decode, encode};
use crate::types::metrics::{self, Timed};

pub(super) struct Plugin {
    pub(super) driver: String,
    pub(super) client: Client,
    pub(super) socket: Rc<str>,
    pub(super) version: Version,
    pub(super) is_connected: Cell<bool>,
    /// Of all plugins: another instance of the driver may still be at a claim.
    pub(super) calls: Rc<RunningCalls>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V1Beta1,
}

pub(super) const PREPARE: &str = "NodePrepareResources";
pub(super) const UNPREPARE: &str = "NodeUnprepareResources";
/// Upstream's timeout of each call.
const DRA_CALL_TIMEOUT: Duration = Duration::from_secs(45);

impl Plugin {
    pub(super) async fn prepare(self: &Rc<Self>, claims: &[Claim]) -> Result<PrepareResponse, DraError> {
        let path = match self.version {
            Version::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
            Version::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        };
        self.call(PREPARE, path, claims).await
    }

    pub(super) async fn unprepare(self: &Rc<Self>, claims: &[Claim]) -> Result<UnprepareResponse, DraError> {
        let path = match self.version {
            Version::V1 => "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
            Version::V1Beta1 => "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
        };
        self.call(UNPREPARE, path, claims).await
    }

    async fn call<M: Message + Default>(
        self: &Rc<Self>,
        method: &'static str,
        path: &'static str,
        claims: &[Claim],
    ) -> Result<M, DraError> {
        let (plugin, request) = (Rc::clone(self), encode(&ClaimsRequest { claims: claims.to_vec() }));
        let call = async move { plugin.bytes(path, request).await };
        let response = self.calls.run(claims, Box::pin(call)).await;
        let response = response.and_then(|bytes| decode(&bytes).map_err(|_| Error::Protocol("malformed answer")));
        response.map_err(|source| DraError::Call { method, source })
    }

    async fn bytes(&self, path: &'static str, request: Vec<u8>) -> Result<Vec<u8>, Error> {
        let begun = rt::now();
        let response = self.client.unary(path, request, DRA_CALL_TIMEOUT).await;
        let code = match &response {
            Ok(_) => Code::Ok,
            Err(Error::Status(status)) => status.code,
            Err(Error::DeadlineExceeded) => Code::DeadlineExceeded,
            Err(_) => Code::Unavailable,
        };
        metrics::took(Timed::DraGrpcOperations, &[&self.driver, path, &code.to_string()], rt::elapsed(begun));
        response
    }
}

/// The first service that the plugin lists and the kubelet can call.
pub(super) fn version(services: &[String]) -> Result<Version, DraError> {
    if services.is_empty() {
        return Err(DraError::NoVersions);
    }
    let [v1, v1beta1] = SERVICES;
    let chosen = services.iter().find_map(|service| match service.as_str() {
        name if name == v1 => Some(Version::V1),
        name if name == v1beta1 => Some(Version::V1Beta1),
        _ => None,
    });
    chosen.ok_or_else(|| DraError::UnsupportedVersions { versions: services.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_chooses_among_the_services_that_the_kubelet_can_call() {
        let chosen = |services: &[&str]| {
            let services: Vec<String> = services.iter().map(|service| (*service).to_owned()).collect();
            version(&services).map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&["v1beta1.DRAPlugin", "v1.DRAPlugin"]), Ok(Version::V1Beta1));
        assert_eq!(chosen(&["v2.DRAPlugin", "v1.DRAPlugin"]), Ok(Version::V1));
        let text = "none of services supported by the plugin ([\"1.0.0\"]) are supported by the kubelet \
                    ([\"v1.DRAPlugin\", \"v1beta1.DRAPlugin\"])";
        assert_eq!(chosen(&["1.0.0"]), Err(text.to_owned()));
        assert_eq!(chosen(&[]), Err("empty list of supported gRPC services (aka supported versions)".to_owned()));
    }
}
