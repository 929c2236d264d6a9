//! Reads the policy and its keys from the disk.

use std::path::Path;

use super::policy::Policy;
use crate::platform::host::file::read_all;
use crate::platform::rt;

const MAX_POLICY_BYTES: u64 = 1 << 20;
const MAX_POLICY_KEY_BYTES: u64 = 64 << 10;

/// Reads the policy, each time anew: pods start rarely, and a changed file or key counts at once. The error is one line
/// with the file's name.
pub(crate) async fn read_policy(path: &Path) -> Result<Policy, String> {
    let path = path.to_owned();
    rt::blocking(move || load_policy(&path)).await
}

/// As [`read_policy`]. Blocks.
pub(crate) fn load_policy(path: &Path) -> Result<Policy, String> {
    let named = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let text = read_all(path, MAX_POLICY_BYTES).map_err(|error| named(&error))?;
    let read_key = |key: &Path| read_all(key, MAX_POLICY_KEY_BYTES).map_err(|error| error.to_string());
    Policy::parse(&text, &read_key).map_err(|error| named(&error))
}
