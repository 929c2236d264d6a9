//! Why a pod gets no CPUs, memory or devices. Pure.

use crate::types::api::Reason;

/// The reason and message of a rejected pod, as upstream.
pub(crate) type AllocationRejection = (Reason, String);

/// The rejection for a failed allocation.
pub(crate) fn unexpected(why: &str) -> AllocationRejection {
    (Reason::UNEXPECTED_ADMISSION_ERROR, format!("Allocate failed due to {why}, which is unexpected"))
}
