//! The table of results: measured value, limit, and whether the limit holds.

use std::fmt::Display;
use std::fs;
use std::path::Path;

#[derive(Default)]
pub(crate) struct Report {
    missed: usize,
}

impl Report {
    /// Adds a row. `holds` is whether the limit holds.
    pub(crate) fn row(&mut self, what: &str, measured: impl Display, limit: impl Display, holds: bool) {
        self.missed += usize::from(!holds);
        let verdict = if holds { "ok" } else { "MISSED" };
        println!("{what:<42} {measured:>28}   {limit:<34} {verdict}");
    }

    pub(crate) fn note(&self, what: &str, measured: impl Display) {
        println!("{what:<42} {measured:>28}");
    }

    /// Adds the size of the binary. `cross/build` checks the size limits of release binaries.
    pub(crate) fn binary(&self, measured: &Path) {
        println!("{}, {} bytes", measured.display(), fs::metadata(measured).unwrap().len());
    }

    pub(crate) fn finish(&self) {
        match self.missed {
            0 => println!("every promise held"),
            missed => println!("{missed} promises missed"),
        }
    }
}
