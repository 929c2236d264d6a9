//! Devices allocated to a container. Pure.

/// Devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedDevices {
    pub(crate) container: String,
    pub(crate) resource: String,
    /// Device ids and their health.
    pub(crate) devices: Vec<(String, bool)>,
}
