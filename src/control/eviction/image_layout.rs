//! The file systems of images and writable layers, and their effect on eviction. Pure.
//!
//! See `buildSignalToRankFunc` and its neighbours in pkg/kubelet/eviction/helpers.go.

use crate::platform::config::{Signal, Threshold};

/// File systems of the runtime relative to the node's root directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Everything is on one file system.
    #[default]
    Shared,
    /// Images and writable layers share a file system of their own.
    ImagesApart,
    /// Images have a file system of their own; writable layers are beside the pods' volumes.
    Split,
}

/// The parts of a pod's disk usage that count for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedUsage {
    pub(crate) layers: bool,
    /// Logs, volumes and the pod's own files.
    pub(crate) local: bool,
}

/// What the node can remove before it evicts pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReclaim {
    pub(crate) dead_containers: bool,
    pub(crate) images: bool,
    /// What was fetched of images, and what is kept of them for other nodes: both are in the node's root directory.
    pub(crate) image_parts: bool,
}

impl Layout {
    /// The effective thresholds. Those of `containerfs` cannot be configured; they depend on the file system of the
    /// writable layers.
    pub(crate) fn thresholds(self, configured: &[Threshold]) -> Vec<Threshold> {
        let is_own = |signal| matches!(signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree);
        let mut thresholds: Vec<Threshold> = configured.iter().copied().filter(|t| !is_own(t.signal)).collect();
        let (bytes, inodes) = match self {
            Self::Shared | Self::Split => (Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
            Self::ImagesApart => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        };
        let follow = |t: &Threshold| match t.signal {
            signal if signal == bytes => Some(Threshold { signal: Signal::ContainerFsAvailable, ..*t }),
            signal if signal == inodes => Some(Threshold { signal: Signal::ContainerFsInodesFree, ..*t }),
            _ => None,
        };
        let following: Vec<Threshold> = thresholds.iter().filter_map(follow).collect();
        thresholds.extend(following);
        thresholds
    }

    pub(crate) fn parts(self, signal: Signal) -> CountedUsage {
        let images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        let nodefs = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
        match self {
            Self::Shared => CountedUsage { layers: true, local: true },
            Self::ImagesApart => CountedUsage { layers: !nodefs, local: nodefs },
            Self::Split => CountedUsage { layers: !images, local: !images },
        }
    }

    pub(crate) fn reclaim_of(self, signal: Signal) -> NodeReclaim {
        let of = |dead_containers, images, image_parts| NodeReclaim { dead_containers, images, image_parts };
        match (self, signal) {
            (_, Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable | Signal::PidAvailable) => {
                of(false, false, false)
            }
            (Self::Shared, _) => of(true, true, true),
            (Self::ImagesApart, Signal::NodeFsAvailable | Signal::NodeFsInodesFree) => of(false, false, true),
            (Self::ImagesApart, _) => of(true, true, false),
            (Self::Split, Signal::ImageFsAvailable | Signal::ImageFsInodesFree) => of(false, true, false),
            (Self::Split, _) => of(true, false, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::config::Amount;

    fn threshold(signal: Signal, percent: f32) -> Threshold {
        Threshold { signal, value: Amount::Share(percent), grace: Duration::ZERO, min_reclaim: None }
    }

    #[test]
    fn containerfs_has_the_thresholds_of_its_file_system() {
        let configured = [
            threshold(Signal::NodeFsAvailable, 0.1),
            threshold(Signal::ImageFsAvailable, 0.15),
            threshold(Signal::ContainerFsAvailable, 0.5),
        ];
        for (layout, share) in [(Layout::Shared, 0.1), (Layout::Split, 0.1), (Layout::ImagesApart, 0.15)] {
            let all = layout.thresholds(&configured);
            let containerfs: Vec<_> = all.iter().filter(|t| t.signal == Signal::ContainerFsAvailable).collect();
            assert_eq!(containerfs, [&threshold(Signal::ContainerFsAvailable, share)], "{layout:?}");
            assert_eq!(all.len(), 3);
        }
    }

    #[test]
    fn only_usage_of_the_full_file_system_counts() {
        let parts = |layout: Layout, signal| {
            let CountedUsage { layers, local } = layout.parts(signal);
            (layers, local)
        };
        for (signal, shared, apart, split) in [
            (Signal::NodeFsAvailable, (true, true), (false, true), (true, true)),
            (Signal::ImageFsInodesFree, (true, true), (true, false), (false, false)),
            (Signal::ContainerFsAvailable, (true, true), (true, false), (true, true)),
        ] {
            assert_eq!(parts(Layout::Shared, signal), shared);
            assert_eq!(parts(Layout::ImagesApart, signal), apart);
            assert_eq!(parts(Layout::Split, signal), split);
        }
    }

    #[test]
    fn node_reclaims_only_what_frees_the_full_file_system() {
        let given = |layout: Layout, signal| {
            let NodeReclaim { dead_containers, images, image_parts } = layout.reclaim_of(signal);
            (dead_containers, images, image_parts)
        };
        assert_eq!(given(Layout::Shared, Signal::MemoryAvailable), (false, false, false));
        assert_eq!(given(Layout::Shared, Signal::NodeFsAvailable), (true, true, true));
        assert_eq!(given(Layout::ImagesApart, Signal::NodeFsAvailable), (false, false, true));
        assert_eq!(given(Layout::ImagesApart, Signal::ContainerFsInodesFree), (true, true, false));
        assert_eq!(given(Layout::Split, Signal::ImageFsAvailable), (false, true, false));
        assert_eq!(given(Layout::Split, Signal::NodeFsAvailable), (true, false, true));
    }
}
