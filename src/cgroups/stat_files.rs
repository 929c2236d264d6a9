//! The kernel's files about what a group uses and what has happened in it. Pure.

/// How many processes of the group, and of those below it, the kernel has killed for want of memory; from
/// `memory.events`.
pub(crate) fn oom_kills(text: &str) -> Option<u64> {
    flat_keyed(text, "oom_kill")
}

/// The value of `key` in a flat keyed file; `None` if this kernel does not have the key.
pub(super) fn flat_keyed(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_whole_and_a_missing_one_is_none() {
        let text = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(oom_kills(text), Some(2));
        assert_eq!(flat_keyed(text, "oom"), Some(3));
        assert_eq!(flat_keyed(text, "oo"), None);
        assert_eq!(flat_keyed("oom_kill x\n", "oom_kill"), None);
        assert_eq!(oom_kills(""), None);
    }
}
