//! Volume metrics of claims for `/metrics`. Pure.

use super::external_volumes::ForeignVolume;
use super::snapshot::VolumeSnapshot;
use crate::types::metrics::{Exposition, Kind, Labels, Number};
use crate::types::sorted::SortOnce;

/// A claim and the usage of its volume.
#[derive(Debug)]
pub(crate) struct ClaimUsage {
    namespace: String,
    claim: String,
    usage: VolumeSnapshot,
}

impl ClaimUsage {
    /// `None` for a volume without a claim.
    pub(super) fn of(volume: &ForeignVolume, usage: VolumeSnapshot) -> Option<Self> {
        Some(Self { namespace: volume.namespace.clone(), claim: volume.claim.clone()?, usage })
    }
}

/// For a claim used by several pods, keeps the first.
pub(super) fn each_once(claims: impl Iterator<Item = ClaimUsage>) -> Vec<ClaimUsage> {
    let mut once: Vec<ClaimUsage> = claims.collect();
    once.sort_once_by(|one, other| (&one.namespace, &one.claim).cmp(&(&other.namespace, &other.claim)));
    once.dedup_by(|later, first| (&later.namespace, &later.claim) == (&first.namespace, &first.claim));
    once
}

/// Upstream's metric families.
pub(crate) fn write_claims(page: &mut Exposition, claims: &[ClaimUsage]) {
    for (name, help, value) in VOLUME_FAMILIES {
        page.family(name, Kind::Gauge, help);
        for ClaimUsage { namespace, claim, usage: seen } in claims {
            let labels = Labels::of(&[("namespace", namespace), ("persistentvolumeclaim", claim)]);
            page.sample(&labels, Number::Whole(value(seen)));
        }
    }
}

type Family = (&'static str, &'static str, fn(&VolumeSnapshot) -> u64);

const VOLUME_FAMILIES: [Family; 6] = [
    ("kubelet_volume_stats_available_bytes", "[ALPHA] Number of available bytes in the volume", |seen| {
        seen.disk.available
    }),
    ("kubelet_volume_stats_capacity_bytes", "[ALPHA] Capacity in bytes of the volume", |seen| seen.disk.capacity),
    ("kubelet_volume_stats_inodes", "[ALPHA] Maximum number of inodes in the volume", |seen| seen.disk.inodes),
    ("kubelet_volume_stats_inodes_free", "[ALPHA] Number of free inodes in the volume", |seen| seen.disk.inodes_free),
    ("kubelet_volume_stats_inodes_used", "[ALPHA] Number of used inodes in the volume", |seen| seen.used.inodes),
    ("kubelet_volume_stats_used_bytes", "[ALPHA] Number of used bytes in the volume", |seen| seen.used.bytes),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::host::disk_usage::DiskUsage;

    #[test]
    fn claim_of_several_pods_is_listed_once() {
        let claim = |claim: &str, bytes| ClaimUsage {
            namespace: "ns".to_owned(),
            claim: claim.to_owned(),
            usage: VolumeSnapshot { used: DiskUsage { bytes, inodes: 1 }, ..VolumeSnapshot::default() },
        };
        let claims = each_once([claim("a", 1), claim("b", 2), claim("a", 3)].into_iter());
        let text = |claims: &[ClaimUsage]| {
            let mut page = Exposition::default();
            write_claims(&mut page, claims);
            String::from_utf8(page.into_bytes()).unwrap()
        };
        let page = text(&claims);
        assert_eq!(page.matches("kubelet_volume_stats_used_bytes{").count(), 2, "{page}");
        for (claim, bytes) in [("a", 1), ("b", 2)] {
            let line = format!(
                "kubelet_volume_stats_used_bytes{{namespace=\"ns\",persistentvolumeclaim=\"{claim}\"}} {bytes}\n"
            );
            assert!(page.contains(&line), "{page}");
        }
        assert_eq!(text(&[]), "");
    }
}
