//! Prepares the claims of a pod.

use std::rc::Rc;

use super::DraManager;
use super::claim_info::{Batches, ClaimInfo, ClaimName, PreparedDevice};
use super::error::DraError;
use super::plugin::{PREPARE, Plugin};
use super::v1::PrepareResponse;
use crate::platform::rt;
use crate::protocol::protobuf::encode;
use crate::state::objects::{
    AllocatedFile, DEVICE_FILES_DRIVER, Lookup, Objects, ResourceClaimKey, extended_requests, pod_claims,
};
use crate::types::api::{Container, Pod};
use crate::types::metrics::{self, Timed};
use crate::types::owned::View;
use crate::types::sorted::{SortOnce, SortedMap};

impl DraManager {
    /// Prepares the pod's claims, before its sandbox is created. Skips claims that are already prepared.
    pub(crate) async fn prepare(&self, pod: &Pod, objects: &View<Objects>) -> Result<(), DraError> {
        if !self.concerns(pod) {
            return Ok(());
        }
        let begun = rt::now();
        let prepared = self.prepare_claims(pod, objects).await;
        let is_error = if prepared.is_err() { "true" } else { "false" };
        metrics::took(Timed::DraOperations, &["PrepareResources", is_error], rt::elapsed(begun));
        prepared
    }

    /// Whether the devices of all claims of the pod are known. After a lost checkpoint they are not, although the pod's
    /// sandbox exists.
    pub(crate) fn is_recorded(&self, pod: &Pod) -> bool {
        let cache = self.cache.borrow();
        let is_recorded = |claim: &str| {
            let name = (pod.metadata.namespace.clone(), claim.to_owned());
            cache.claims.get(&name).is_some_and(|info| info.is_recorded && info.pods.contains(&pod.metadata.uid))
        };
        pod_claims(pod).flatten().filter_map(|claim| claim.claim).all(is_recorded)
    }

    async fn prepare_claims(&self, pod: &Pod, objects: &View<Objects>) -> Result<(), DraError> {
        self.read().await.map_err(DraError::Checkpoint)?;
        self.rebuild(objects);
        // Nothing is recorded before all claims and drivers are known, so that a pod that cannot start can be deleted
        // without its drivers.
        let claims = wanted(pod, &objects.read())?;
        let mut plugins: SortedMap<String, Rc<Plugin>> = SortedMap::new();
        let drivers = claims.iter().flat_map(|(_, wanted)| wanted.info.drivers.keys());
        for driver in drivers.filter(|driver| *driver != DEVICE_FILES_DRIVER) {
            plugins.insert(driver.clone(), self.plugin(driver)?);
        }
        let mut unprepared = Vec::new();
        let mut files = Vec::new();
        for (name, WantedClaim { info: claim, files: allocated }) in claims {
            if self.leaving.borrow().contains(&name) {
                return Err(DraError::Leaving { name: name.1 });
            }
            if self.cache.borrow_mut().reserve(name.clone(), claim, &pod.metadata.uid)? {
                unprepared.push(name);
                files.extend(allocated);
            }
        }
        self.claim_files();
        // Written before the first call, so that a later process unprepares the claims if this one is killed.
        self.write().await?;
        // After the claim on the files, so that no container gets one of them in between.
        self.check_files(&files)?;
        let batches: Batches = self.cache.borrow().batches(&unprepared);
        for (driver, claims) in &batches {
            let Some(plugin) = plugins.get(driver) else { continue };
            let response = plugin.prepare(claims).await?;
            let mut cache = self.cache.borrow_mut();
            for (name, devices) in read(claims, response)? {
                if let Some(info) = cache.claims.get_mut(&name) {
                    info.drivers.insert(driver.clone(), devices);
                }
            }
        }
        for name in &unprepared {
            if let Some(info) = self.cache.borrow_mut().claims.get_mut(name) {
                (info.is_prepared, info.is_recorded) = (true, true);
            }
        }
        self.write().await
    }
}

/// Longest description of a claim's devices by a driver. It is kept in the checkpoint. A claim has at most 32 devices.
const MAX_PREPARED_CLAIM_BYTES: usize = 64 * 1024;

fn encoded_length(devices: &[super::v1::Device]) -> usize {
    devices.iter().map(|device| encode(device).len().saturating_add(CHECKPOINT_DEVICE_BYTES)).sum()
}

/// What each device takes in the checkpoint besides its names.
const CHECKPOINT_DEVICE_BYTES: usize = 100;

struct WantedClaim {
    info: ClaimInfo,
    files: Vec<AllocatedFile>,
}

/// The claims that a pod needs; an error if it may not use one of them.
fn wanted(pod: &Pod, objects: &Objects) -> Result<Vec<(ClaimName, WantedClaim)>, DraError> {
    let mut wanted = Vec::new();
    for entry in pod_claims(pod) {
        let entry = entry.map_err(DraError::ClaimNotCreated)?;
        let Some(name) = entry.claim else { continue };
        let claim = match objects.resource_claim(&ResourceClaimKey::new(pod, name, entry.is_generated)) {
            Lookup::Found(claim) => claim,
            Lookup::Missing => return Err(DraError::ClaimMissing { name: name.to_owned() }),
            Lookup::Unknown(why) => return Err(DraError::ClaimUnusable { why }),
        };
        let name = (pod.metadata.namespace.clone(), name.to_owned());
        wanted.push((name, WantedClaim { info: ClaimInfo::new(claim), files: claim.files.clone() }));
    }
    Ok(wanted)
}

/// The devices of each claim of a request.
fn read(
    claims: &[super::v1::Claim],
    response: PrepareResponse,
) -> Result<Vec<(ClaimName, Vec<PreparedDevice>)>, DraError> {
    let mut read = Vec::new();
    for entry in response.claims {
        let Some(claim) = claims.iter().find(|claim| claim.uid == entry.uid) else {
            return Err(DraError::UnknownClaim { method: PREPARE, uid: entry.uid });
        };
        let result = entry.result.unwrap_or_default();
        if !result.error.is_empty() {
            return Err(DraError::Claim { method: PREPARE, claim: claim.name.clone(), message: result.error });
        }
        if encoded_length(&result.devices) > MAX_PREPARED_CLAIM_BYTES {
            let message = format!("its devices take more than {MAX_PREPARED_CLAIM_BYTES} bytes");
            return Err(DraError::Claim { method: PREPARE, claim: claim.name.clone(), message });
        }
        let devices = result.devices.into_iter().map(PreparedDevice::from).collect();
        read.push(((claim.namespace.clone(), claim.name.clone()), devices));
    }
    match claims.len().saturating_sub(read.len()) {
        0 => Ok(read),
        count => Err(DraError::Skipped { method: PREPARE, count }),
    }
}

/// The ResourceClaim of an entry of the pod, if it needs one.
pub(super) fn claim_of(pod: &Pod, entry: &str) -> Option<ClaimName> {
    let claim = pod_claims(pod).flatten().find(|claim| claim.entry == entry && !entry.is_empty())?.claim?;
    Some((pod.metadata.namespace.clone(), claim.to_owned()))
}

/// The claims that a container uses: the entry's name, the claim, and the requests (an empty one means all).
pub(super) fn container_claims(
    pod: &Pod,
    container: &Container,
) -> Result<Vec<(String, ClaimName, Vec<String>)>, DraError> {
    let mut wanted: Vec<_> = container.resources.claims.iter().collect();
    wanted.sort_once_by(|one, other| one.name.cmp(&other.name));
    let mut used = Vec::new();
    for claim in pod_claims(pod) {
        let claim = claim.map_err(DraError::ClaimNotCreated)?;
        let requests: Vec<String> = if claim.entry.is_empty() {
            let has = |resource: &str| {
                let amounts = [&container.resources.requests, &container.resources.limits];
                amounts.into_iter().any(|list| list.get(resource).is_some_and(|amount| amount.value() > 0))
            };
            let requests = extended_requests(pod, &container.name).filter(|(resource, _)| has(resource));
            requests.map(|(_, request)| request.to_owned()).collect()
        } else {
            let before = wanted.partition_point(|claim_request| claim_request.name.as_str() < claim.entry);
            let of_entry = wanted.iter().skip(before).take_while(|claim_request| claim_request.name == claim.entry);
            of_entry.map(|claim_request| claim_request.request.clone()).collect()
        };
        if let (Some(name), false) = (claim.claim, requests.is_empty()) {
            used.push((claim.entry.to_owned(), (pod.metadata.namespace.clone(), name.to_owned()), requests));
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::v1::{Claim, Device, PrepareEntry, PrepareResult};
    use super::*;
    use crate::types::api::decode;

    fn claim(name: &str) -> Claim {
        Claim { namespace: "ns".to_owned(), uid: format!("{name}-uid"), name: name.to_owned() }
    }

    fn entry(uid: &str, error: &str) -> PrepareEntry {
        let devices = vec![Device { device_name: "a".to_owned(), ..Device::default() }];
        PrepareEntry { uid: uid.to_owned(), result: Some(PrepareResult { devices, error: error.to_owned() }) }
    }

    #[test]
    fn response_must_have_exactly_the_claims_of_the_request() {
        let asked = [claim("c"), claim("d")];
        let response = |entries: &[PrepareEntry]| {
            let read = read(&asked, PrepareResponse { claims: entries.to_vec() });
            read.map(|claims| claims.len()).map_err(|error| error.to_string())
        };
        assert_eq!(response(&[entry("c-uid", ""), entry("d-uid", "")]), Ok(2));
        assert_eq!(response(&[entry("c-uid", "")]), Err("NodePrepareResources skipped 1 ResourceClaims".to_owned()));
        let text = "NodePrepareResources returned result for unknown claim UID x";
        assert_eq!(response(&[entry("x", "")]), Err(text.to_owned()));
        let text = "NodePrepareResources failed for ResourceClaim d: no such device";
        assert_eq!(response(&[entry("d-uid", "no such device")]), Err(text.to_owned()));
    }

    #[test]
    fn devices_of_a_claim_are_bounded() {
        let response = |devices: usize, name: usize| {
            let device = Device { device_name: "a".repeat(name), ..Device::default() };
            let result = PrepareResult { devices: vec![device; devices], error: String::new() };
            let entry = PrepareEntry { uid: "c-uid".to_owned(), result: Some(result) };
            read(&[claim("c")], PrepareResponse { claims: vec![entry] }).map(|claims| claims.len())
        };
        assert_eq!(response(32, 1000).unwrap(), 1);
        assert!(response(1, 70_000).is_err() && response(1000, 0).is_err());
    }

    #[test]
    fn container_uses_the_claims_and_requests_that_it_names() {
        let pod: Pod = decode(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {
                "resourceClaims": [
                    {"name": "one", "resourceClaimName": "c"}, {"name": "two", "resourceClaimName": "d"},
                ],
                "containers": [
                    {"name": "main", "resources": {"claims": [{"name": "one", "request": "gpu"}, {"name": "two"}]}},
                    {"name": "side", "resources": {"limits": {"example.com/gpu": "1"}}},
                    {"name": "none"},
                ],
            },
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": [
                {"containerName": "side", "resourceName": "example.com/gpu", "requestName": "r0"},
            ]}},
        }))
        .unwrap()
        .value;
        let of = |index: usize| {
            let used = container_claims(&pod, &pod.spec.containers[index]).unwrap();
            used.into_iter().map(|(_, (_, claim), requests)| (claim, requests)).collect::<Vec<_>>()
        };
        let claim = |name: &str, request: &str| (name.to_owned(), vec![request.to_owned()]);
        assert_eq!(of(0), [claim("c", "gpu"), claim("d", "")]);
        assert_eq!(of(1), [claim("e", "r0")]);
        assert!(of(2).is_empty());
    }
}
