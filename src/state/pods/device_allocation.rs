//! The devices that a container has been given. Pure.

/// Of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedDevices {
    pub(crate) container: String,
    pub(crate) resource: String,
    /// Each by its id, and whether it is healthy.
    pub(crate) devices: Vec<(String, bool)>,
}
