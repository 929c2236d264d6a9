//! The file `dra_manager_state` in upstream's format. Pure.
//!
//! ```text
//! {"Data":"{\"kind\":\"DRACheckpoint\",...,\"ClaimInfoStateList\":[...]}","Checksum":123}
//! ```
//!
//! The checksum is the CRC-32 (IEEE) of the text in `Data`.

use flate2::Crc;
use serde_json::{Map, Value, json};

use super::claim_info::{ClaimInfo, ClaimInfoCache, PreparedDevice};

const DRA_CHECKPOINT_KIND: &str = "DRACheckpoint";
const DRA_CHECKPOINT_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

pub(super) fn write(cache: &ClaimInfoCache) -> String {
    let claims: Vec<Value> =
        cache.claims.iter().map(|((namespace, name), info)| entry(namespace, name, info)).collect();
    let claims = if claims.is_empty() { Value::Null } else { claims.into() };
    let data = json!({"kind": DRA_CHECKPOINT_KIND, "apiVersion": DRA_CHECKPOINT_VERSION, "ClaimInfoStateList": claims})
        .to_string();
    json!({"Checksum": checksum(&data), "Data": data}).to_string()
}

/// `None` if the text is corrupt.
pub(super) fn read(text: &str) -> Option<ClaimInfoCache> {
    let file: Value = serde_json::from_str(text).ok()?;
    let data = file.get("Data")?.as_str()?;
    if file.get("Checksum")?.as_u64()? != u64::from(checksum(data)) {
        return None;
    }
    let data: Value = serde_json::from_str(data).ok()?;
    let mut cache = ClaimInfoCache::default();
    for claim in data.get("ClaimInfoStateList")?.as_array().into_iter().flatten() {
        let text = |key: &str| claim.get(key)?.as_str().map(str::to_owned);
        let name = (text("Namespace")?, text("ClaimName")?);
        let pods = claim.get("PodUIDs").and_then(Value::as_object).into_iter().flatten();
        let pods = pods.map(|(uid, _)| uid.as_str().into()).collect();
        let drivers = claim.get("DriverState").and_then(Value::as_object).into_iter().flatten();
        let drivers = drivers.map(|(driver, state)| (driver.clone(), devices(state))).collect();
        // As upstream, drivers are called again after a restart: they accept repeated calls.
        cache
            .claims
            .insert(name, ClaimInfo { uid: text("ClaimUID")?, pods, drivers, is_prepared: false, is_recorded: true });
    }
    Some(cache)
}

fn entry(namespace: &str, name: &str, info: &ClaimInfo) -> Value {
    let pods: Map<String, Value> = info.pods.iter().map(|uid| (uid.as_str().to_owned(), json!({}))).collect();
    let device = |device: &PreparedDevice| {
        json!({
            "PoolName": device.pool,
            "DeviceName": device.device,
            "ShareID": device.share_id,
            "RequestNames": device.requests,
            "CDIDeviceIDs": device.cdi_ids,
        })
    };
    let state = |devices: &Vec<PreparedDevice>| match devices.is_empty() {
        true => json!({"Devices": null}),
        false => json!({"Devices": devices.iter().map(device).collect::<Vec<_>>()}),
    };
    let drivers: Map<String, Value> =
        info.drivers.iter().map(|(name, devices)| (name.clone(), state(devices))).collect();
    json!({"ClaimUID": info.uid, "ClaimName": name, "Namespace": namespace, "PodUIDs": pods, "DriverState": drivers})
}

fn devices(state: &Value) -> Vec<PreparedDevice> {
    let listed = state.get("Devices").and_then(Value::as_array).into_iter().flatten();
    let device = |entry: &Value| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let list = |key: &str| {
            let list = entry.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        PreparedDevice {
            pool: text("PoolName").unwrap_or_default(),
            device: text("DeviceName").unwrap_or_default(),
            share_id: text("ShareID"),
            requests: list("RequestNames"),
            cdi_ids: list("CDIDeviceIDs"),
        }
    };
    listed.map(device).collect()
}

fn checksum(data: &str) -> u32 {
    let mut crc = Crc::new();
    crc.update(data.as_bytes());
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> ClaimInfoCache {
        let device = PreparedDevice {
            pool: "node1".to_owned(),
            device: "gpu-0".to_owned(),
            share_id: None,
            requests: vec!["gpu".to_owned()],
            cdi_ids: vec!["example.com/gpu=0".to_owned()],
        };
        let drivers = [("gpu.example.com".to_owned(), vec![device]), ("nic.example.com".to_owned(), Vec::new())];
        let info = ClaimInfo {
            uid: "c-uid".to_owned(),
            pods: ["u".into()].into_iter().collect(),
            drivers: drivers.into_iter().collect(),
            is_prepared: false,
            is_recorded: true,
        };
        ClaimInfoCache { claims: [(("ns".to_owned(), "c".to_owned()), info)].into_iter().collect() }
    }

    #[test]
    fn checkpoint_is_read_back() {
        assert_eq!(read(&write(&cache())), Some(cache()));
        assert_eq!(read(&write(&ClaimInfoCache::default())), Some(ClaimInfoCache::default()));
    }

    #[test]
    fn upstreams_checkpoint_is_read() {
        // As the upstream kubelet 1.36 writes it, with the fields in the order of its structs.
        let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1","ClaimInfoStateList":[{"ClaimUID":"c-uid","ClaimName":"c","Namespace":"ns","PodUIDs":{"u":{}},"DriverState":{"gpu.example.com":{"Devices":[{"PoolName":"node1","DeviceName":"gpu-0","ShareID":null,"RequestNames":["gpu"],"CDIDeviceIDs":["example.com/gpu=0"]}]},"nic.example.com":{"Devices":null}}}]}"#;
        let file = json!({"Data": data, "Checksum": checksum(data)}).to_string();
        assert_eq!(read(&file), Some(cache()));
    }

    #[test]
    fn corrupt_checkpoint_is_not_read() {
        let whole = write(&cache());
        assert_eq!(read(&whole.replace("gpu-0", "gpu-1")), None, "the checksum does not match");
        for end in [0, 1, whole.len() / 2, whole.len() - 1] {
            assert_eq!(read(whole.get(..end).unwrap()), None);
        }
    }
}
