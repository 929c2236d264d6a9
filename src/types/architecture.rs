//! The machine's architecture in Go's naming, which images have. Pure.

/// `GOARCH`.
pub(crate) const ARCHITECTURE: &str = if cfg!(target_arch = "x86_64") {
    "amd64"
} else if cfg!(target_arch = "aarch64") {
    "arm64"
} else if cfg!(target_arch = "x86") {
    "386"
} else if cfg!(target_arch = "riscv64") {
    "riscv64"
} else {
    "arm"
};

/// What to do about an image of another architecture.
pub(crate) const BUILD_FOR_THIS_MACHINE: &str = if cfg!(target_arch = "x86_64") {
    "build with --platform linux/amd64"
} else if cfg!(target_arch = "aarch64") {
    "build with --platform linux/arm64"
} else if cfg!(target_arch = "x86") {
    "build with --platform linux/386"
} else if cfg!(target_arch = "riscv64") {
    "build with --platform linux/riscv64"
} else {
    "build with --platform linux/arm/v7"
};

/// Whether this machine may run programs of the architecture: its own, or the 32-bit one of the same kind.
pub(crate) fn may_run(architecture: &str) -> bool {
    architecture == ARCHITECTURE || [("amd64", "386"), ("arm64", "arm")].contains(&(ARCHITECTURE, architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_architecture_runs_and_a_foreign_one_does_not() {
        assert!(may_run(ARCHITECTURE));
        assert!(!may_run("s390x"));
        assert!(BUILD_FOR_THIS_MACHINE.contains(&format!("linux/{ARCHITECTURE}")));
    }
}
