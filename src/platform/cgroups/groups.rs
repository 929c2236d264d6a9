//! Creates, updates and removes cgroups with the runtime's cgroup driver.

use std::io;
use std::path::{Path, PathBuf};

use super::error::CgroupError;
use super::name::{CgroupName, directory};
use super::systemd::{SYSTEMD_SOCKET, Systemd};
use super::tree::Tree;
use super::values::Values;
use crate::platform::config::CgroupDriver;

/// The cgroups of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) tree: Tree,
    systemd: PathBuf,
}

impl Groups {
    /// `root` is the mount point of the hierarchy.
    pub(crate) fn new(root: &Path) -> Self {
        Self { tree: Tree::new(root), systemd: PathBuf::from(SYSTEMD_SOCKET) }
    }

    /// Creates the group if needed and sets its values.
    pub(crate) fn ensure(&self, name: &CgroupName, driver: CgroupDriver, values: &Values) -> Result<(), CgroupError> {
        let path = name.path(driver);
        if driver == CgroupDriver::Systemd {
            self.ensure_units(name, &path, values)?;
        }
        self.tree.make(&path)?;
        self.tree.set(&path, values)
    }

    /// As [`Self::ensure`], but never lowers a limit.
    pub(crate) fn widen(&self, name: &CgroupName, driver: CgroupDriver, values: Values) -> Result<(), CgroupError> {
        let has = self.tree.limits(&name.path(driver));
        self.ensure(name, driver, &values.widest(&has))
    }

    /// The weight and the limits of an existing group.
    pub(crate) fn limits(&self, name: &CgroupName, driver: CgroupDriver) -> Values {
        self.tree.limits(&name.path(driver))
    }

    /// Sets the values of an existing group.
    pub(crate) fn set(&self, name: &CgroupName, driver: CgroupDriver, values: &Values) -> Result<(), CgroupError> {
        let path = name.path(driver);
        // Compares files first, because a call of systemd wakes another process.
        let differs = !self.tree.differing(&path, values)?.is_empty();
        if differs && driver == CgroupDriver::Systemd {
            let unit = name.unit();
            self.call_systemd(&unit, |systemd| systemd.set(&unit, values))?;
        }
        self.tree.set(&path, values)
    }

    /// Removes a group and everything in it. Returns the number of processes killed.
    pub(crate) fn remove(&self, name: &CgroupName, driver: CgroupDriver) -> Result<usize, CgroupError> {
        let path = name.path(driver);
        self.remove_at(&path, driver)
    }

    /// As [`Self::remove`], for a group of which only the path is known.
    pub(crate) fn remove_at(&self, path: &str, driver: CgroupDriver) -> Result<usize, CgroupError> {
        if !self.tree.exists(path) {
            return Ok(0);
        }
        // Before systemd stops the slice: it would send SIGTERM to the processes and wait.
        let killed = self.tree.remove(path)?;
        if driver == CgroupDriver::Systemd {
            let unit = directory(path);
            self.call_systemd(unit, |systemd| systemd.stop(unit))?;
            // systemd may have recreated the group meanwhile.
            self.tree.remove(path)?;
        }
        Ok(killed)
    }

    /// Starts the systemd slices of the group and its parents, and sets the values that the files do not have yet.
    fn ensure_units(&self, name: &CgroupName, path: &str, values: &Values) -> Result<(), CgroupError> {
        if self.tree.exists(path) {
            if self.tree.differing(path, values)?.is_empty() {
                return Ok(());
            }
            let unit = name.unit();
            return self.call_systemd(&unit, |systemd| systemd.start_slice(&unit, None, values));
        }
        self.call_systemd(&name.unit(), |systemd| {
            let mut above: Option<String> = None;
            for (unit, unit_path) in name.units() {
                let is_last = unit_path == path;
                if is_last || !self.tree.exists(&unit_path) {
                    let nothing = Values::default();
                    systemd.start_slice(&unit, above.as_deref(), if is_last { values } else { &nothing })?;
                }
                above = Some(unit);
            }
            Ok(())
        })
    }

    fn call_systemd(&self, unit: &str, call: impl FnOnce(&mut Systemd) -> io::Result<()>) -> Result<(), CgroupError> {
        let result = Systemd::connect(&self.systemd).and_then(|mut systemd| call(&mut systemd));
        result.map_err(CgroupError::io("configure systemd unit", Path::new(unit)))
    }
}
