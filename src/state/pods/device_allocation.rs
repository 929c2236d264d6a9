//! Devices allocated to a container. Pure.

/// Devices of one resource, or of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedDevices {
    pub(crate) container: String,
    pub(crate) resource: String,
    pub(crate) devices: Vec<AllocatedDevice>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedDevice {
    pub(crate) id: String,
    pub(crate) health: DeviceHealth,
    /// From a DRA driver.
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceHealth {
    Healthy,
    Unhealthy,
    Unknown,
}

impl DeviceHealth {
    /// As the pod's status has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }
}
