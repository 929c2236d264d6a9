//! Garbage collection of the runtime's process with the lean profile. Pure.

/// Variables of the runtime's process: Go collects when its heap has grown by a fifth, and 64 MiB are a soft limit of
/// all its memory. A limit near what it needs makes it collect all the time: with 16 MiB and ten pods it takes 3 % of a
/// core at rest instead of 0.5, for 1 MB.
pub(super) const GC_VARIABLES: [(&str, &str); 2] = [("GOGC", "20"), ("GOMEMLIMIT", "64MiB")];
