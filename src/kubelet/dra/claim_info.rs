//! The prepared claims with their pods and devices: upstream's claim info cache. Pure.

use super::error::DraError;
use super::v1;
use crate::state::objects::{AllocatedFile, DEVICE_FILES_DRIVER, ResourceClaim};
use crate::types::api::PodUid;
use crate::types::sorted::{SortedMap, SortedSet};

/// A claim that is prepared, or may be: a driver may have been called for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimInfo {
    pub(super) uid: String,
    /// The pods that use it.
    pub(super) pods: SortedSet<PodUid>,
    /// The devices by driver. Drivers without devices are listed too.
    pub(super) drivers: SortedMap<String, Vec<PreparedDevice>>,
    /// This process has prepared it.
    pub(super) is_prepared: bool,
    /// The devices are known, from this process or from the checkpoint.
    pub(super) is_recorded: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PreparedDevice {
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) share_id: Option<String>,
    /// Empty: for all requests of the claim.
    pub(super) requests: Vec<String>,
    pub(super) cdi_ids: Vec<String>,
}

/// Namespace and name.
pub(super) type ClaimName = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClaimInfoCache {
    pub(super) claims: SortedMap<ClaimName, ClaimInfo>,
}

/// The claims to send to each driver, sorted by driver.
pub(super) type Batches = SortedMap<String, Vec<v1::Claim>>;

impl ClaimInfoCache {
    /// Adds the pod to a claim. Returns whether the claim has to be prepared.
    pub(super) fn reserve(&mut self, name: ClaimName, claim: ClaimInfo, pod: &PodUid) -> Result<bool, DraError> {
        let claim_info = self.claims.entry(name.clone()).or_insert_with(|| claim.clone());
        if claim_info.uid != claim.uid {
            return Err(DraError::OldClaim { name: name.1, uid: claim_info.uid.clone() });
        }
        claim_info.pods.insert(pod.clone());
        Ok(!claim_info.is_prepared)
    }

    /// The requests that prepare these claims.
    pub(super) fn batches<'a>(&self, names: impl IntoIterator<Item = &'a ClaimName>) -> Batches {
        let mut batches = Batches::new();
        for name in names {
            let Some(info) = self.claims.get(name) else { continue };
            for driver in info.drivers.keys() {
                batches.entry(driver.clone()).or_default().push(info.request(name));
            }
        }
        batches
    }

    /// Claims that only this pod uses, which are to be unprepared when it ends. [`Self::release`] removes the pod from
    /// other claims.
    pub(super) fn last_used_by(&self, pod: &PodUid) -> Vec<ClaimName> {
        let used = self.claims.iter().filter(|(_, info)| info.pods.contains(pod) && info.pods.len() == 1);
        used.map(|(name, _)| name.clone()).collect()
    }

    /// Removes an ended pod and these claims, which are unprepared. Returns whether anything changed.
    pub(super) fn release(&mut self, pod: &PodUid, unprepared: &[ClaimName]) -> bool {
        let mut changed = false;
        for name in unprepared {
            changed |= self.claims.remove(name).is_some();
        }
        for info in self.claims.values_mut().filter(|info| info.pods.len() > 1) {
            changed |= info.pods.remove(pod);
        }
        changed
    }

    /// Whether the pod uses a claim.
    pub(super) fn is_used_by(&self, pod: &PodUid) -> bool {
        self.claims.values().any(|info| info.pods.contains(pod))
    }

    /// All pods that use claims.
    pub(super) fn pods(&self) -> SortedSet<PodUid> {
        self.claims.values().flat_map(|info| info.pods.iter().cloned()).collect()
    }

    /// Prepared claims by driver, and all of them.
    pub(super) fn in_use(&self) -> (SortedMap<String, u64>, u64) {
        let (mut by_driver, mut in_use_total) = (SortedMap::new(), 0);
        for info in self.claims.values().filter(|info| info.is_prepared) {
            in_use_total += 1;
            for driver in info.drivers.keys() {
                *by_driver.entry(driver.clone()).or_insert(0) += 1;
            }
        }
        (by_driver, in_use_total)
    }
}

impl ClaimInfo {
    pub(super) fn new(claim: &ResourceClaim) -> Self {
        let drivers = claim.drivers.iter().map(|driver| (driver.clone(), Vec::new()));
        let mut drivers: SortedMap<String, Vec<PreparedDevice>> = drivers.collect();
        if let Some(devices) = drivers.get_mut(DEVICE_FILES_DRIVER) {
            devices.extend(claim.files.iter().map(PreparedDevice::from));
        }
        Self { uid: claim.uid.clone(), drivers, ..Self::default() }
    }

    pub(super) fn request(&self, (namespace, name): &ClaimName) -> v1::Claim {
        v1::Claim { namespace: namespace.clone(), uid: self.uid.clone(), name: name.clone() }
    }

    /// The devices of a request; an empty request means all. A subrequest is `request/subrequest`.
    pub(super) fn devices<'a>(&'a self, request: &'a str) -> impl Iterator<Item = (&'a str, &'a PreparedDevice)> {
        let base = request.split_once('/').map_or(request, |(base, _)| base);
        let devices_by_driver =
            self.drivers.iter().flat_map(|(driver, devices)| devices.iter().map(|device| (driver.as_str(), device)));
        devices_by_driver.filter(move |(_, device)| {
            base.is_empty() || device.requests.is_empty() || device.requests.iter().any(|request| request == base)
        })
    }
}

impl From<&AllocatedFile> for PreparedDevice {
    fn from(file: &AllocatedFile) -> Self {
        Self {
            pool: file.pool.clone(),
            device: file.device.clone(),
            requests: vec![file.request.clone()],
            ..Self::default()
        }
    }
}

impl From<v1::Device> for PreparedDevice {
    fn from(device: v1::Device) -> Self {
        Self {
            pool: device.pool_name,
            device: device.device_name,
            share_id: Some(device.share_id).filter(|id| !id.is_empty()),
            requests: device.request_names,
            cdi_ids: device.cdi_device_ids,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ClaimName {
        ("ns".to_owned(), name.to_owned())
    }

    fn claim(drivers: &[&str]) -> ClaimInfo {
        let drivers = drivers.iter().map(|driver| (*driver).to_owned()).collect();
        ClaimInfo::new(&ResourceClaim { uid: "c-uid".to_owned(), drivers, files: Vec::new() })
    }

    #[test]
    fn shared_claim_is_unprepared_with_its_last_pod() {
        let (a, b) = (PodUid::from("a"), PodUid::from("b"));
        let mut cache = ClaimInfoCache::default();
        assert!(cache.reserve(name("c"), claim(&["gpu"]), &a).unwrap());
        cache.claims.get_mut(&name("c")).unwrap().is_prepared = true;
        assert!(!cache.reserve(name("c"), claim(&["gpu"]), &b).unwrap(), "it is prepared already");
        assert!(cache.last_used_by(&a).is_empty());
        assert!(cache.release(&a, &[]) && !cache.release(&a, &[]));
        assert_eq!(cache.last_used_by(&b), [name("c")]);
        assert!(cache.release(&b, &[name("c")]) && !cache.is_used_by(&b));
    }

    #[test]
    fn claim_of_the_same_name_and_another_uid_is_refused() {
        let mut cache = ClaimInfoCache::default();
        cache.reserve(name("c"), claim(&["gpu"]), &PodUid::from("a")).unwrap();
        let new = ClaimInfo { uid: "new".to_owned(), ..claim(&["gpu"]) };
        let refused = cache.reserve(name("c"), new, &PodUid::from("b")).unwrap_err().to_string();
        let text = "old ResourceClaim with same name c and different UID c-uid still exists (previous pod \
                    force-deleted?!)";
        assert_eq!(refused, text);
        assert!(!cache.is_used_by(&PodUid::from("b")));
    }

    #[test]
    fn each_driver_gets_its_claims_in_one_request() {
        let mut cache = ClaimInfoCache::default();
        for (one, drivers) in [("c", &["gpu", "nic"][..]), ("d", &["gpu"])] {
            cache.reserve(name(one), claim(drivers), &PodUid::from("a")).unwrap();
        }
        let batches = cache.batches(&[name("c"), name("d"), name("unknown")]);
        let named: Vec<(&str, Vec<&str>)> = batches
            .iter()
            .map(|(driver, claims)| (driver.as_str(), claims.iter().map(|claim| claim.name.as_str()).collect()))
            .collect();
        assert_eq!(named, [("gpu", vec!["c", "d"]), ("nic", vec!["c"])]);
    }

    #[test]
    fn container_gets_the_devices_of_its_request() {
        let device = |device: &str, requests: &[&str]| PreparedDevice {
            device: device.to_owned(),
            requests: requests.iter().map(|one| (*one).to_owned()).collect(),
            ..PreparedDevice::default()
        };
        let mut info = claim(&[]);
        info.drivers
            .insert("gpu".to_owned(), vec![device("a", &["first"]), device("b", &["second"]), device("c", &[])]);
        let of = |request: &str| info.devices(request).map(|(_, one)| one.device.clone()).collect::<Vec<_>>();
        assert_eq!(of(""), ["a", "b", "c"]);
        assert_eq!(of("first"), ["a", "c"]);
        assert_eq!(of("second/big"), ["b", "c"]);
    }
}
