//! Kernel parameters for memory overcommit and panics that pods rely on.
//!
//! `setupKernelTunables` in pkg/kubelet/cm/container_manager_linux.go.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// Files below `/proc/sys` and their required values.
const KERNEL_PARAMETERS: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// A parameter without its required value.
#[derive(Debug)]
pub(crate) struct ParameterMismatch {
    name: &'static str,
    wanted: i64,
    why: MismatchKind,
}

#[derive(Debug)]
enum MismatchKind {
    /// It has this value, and changes are disabled.
    Holds(i64),
    Unknown(io::Error),
    NotSet(io::Error),
}

/// Sets the parameters that differ and returns those that could not be set. `root`: parent of `proc/sys`.
pub(crate) fn set(root: &Path) -> Vec<ParameterMismatch> {
    check_each(root, |path, wanted, holds| {
        fs::write(path, wanted.to_string()).map_err(MismatchKind::NotSet)?;
        log!(info, "kernel parameter set", file = path.display(), value = wanted, before = holds);
        Ok(())
    })
}

/// Returns the parameters that differ without changing them.
pub(crate) fn check(root: &Path) -> Vec<ParameterMismatch> {
    check_each(root, |_, _, holds| Err(MismatchKind::Holds(holds)))
}

fn check_each(root: &Path, differs: impl Fn(&Path, i64, i64) -> Result<(), MismatchKind>) -> Vec<ParameterMismatch> {
    let see_to = |(name, wanted): (&'static str, i64)| {
        let path = root.join(name);
        let seen = match read(&path).map_err(MismatchKind::Unknown) {
            Ok(holds) if holds == wanted => Ok(()),
            Ok(holds) => differs(&path, wanted, holds),
            Err(why) => Err(why),
        };
        seen.err().map(|why| ParameterMismatch { name, wanted, why })
    };
    KERNEL_PARAMETERS.into_iter().filter_map(see_to).collect()
}

fn read(path: &Path) -> io::Result<i64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

impl fmt::Display for ParameterMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, wanted, why } = self;
        match why {
            MismatchKind::Holds(holds) => {
                write!(f, "invalid kernel flag: {name}, expected value: {wanted}, actual value: {holds}")
            }
            MismatchKind::Unknown(error) => write!(f, "{name}: expected {wanted}, failed to read: {error}"),
            MismatchKind::NotSet(error) => write!(f, "{name}: failed to set {wanted}: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, values: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-kernel-parameters-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (name, value) in values {
                let path = root.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, value).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MACHINE: [(&str, &str); 6] = [
        ("vm/overcommit_memory", "0\n"),
        ("vm/panic_on_oom", "0\n"),
        ("kernel/panic", "-1\n"),
        ("kernel/panic_on_oops", "1\n"),
        ("kernel/keys/root_maxkeys", "200\n"),
        ("kernel/keys/root_maxbytes", "25000000\n"),
    ];

    fn lines(faults: &[ParameterMismatch]) -> Vec<String> {
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differing_parameters_are_set() {
        let machine = Scratch::new("set", &MACHINE);
        assert!(set(&machine.0).is_empty() && check(&machine.0).is_empty());
        for (name, wanted) in KERNEL_PARAMETERS {
            assert_eq!(read(&machine.0.join(name)).unwrap(), wanted, "{name}");
        }
    }

    #[test]
    fn check_changes_nothing_and_names_every_difference() {
        let machine = Scratch::new("check", &MACHINE);
        let expected = [
            "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0",
            "invalid kernel flag: kernel/panic, expected value: 10, actual value: -1",
            "invalid kernel flag: kernel/keys/root_maxkeys, expected value: 1000000, actual value: 200",
        ];
        assert_eq!(lines(&check(&machine.0)), expected);
        assert_eq!(lines(&check(&machine.0)), expected);
    }

    #[test]
    fn missing_parameter_is_reported_and_others_are_set() {
        let machine = Scratch::new("missing", &MACHINE[..4]);
        let faults = lines(&set(&machine.0));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].starts_with("kernel/keys/root_maxkeys: expected 1000000, failed to read: No such file"),
            "{faults:?}"
        );
        assert_eq!(read(&machine.0.join("kernel/panic")).unwrap(), 10);
    }
}
