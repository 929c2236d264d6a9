//! Garbage collection of the runtime's process with the lean profile. Pure.

/// Variables of the runtime's process: Go collects when its heap has grown by a fifth, and 16 MiB are a soft limit of
/// all its memory. Half of both saves no more.
pub(super) const GC_VARIABLES: [(&str, &str); 2] = [("GOGC", "20"), ("GOMEMLIMIT", "16MiB")];
