//! The table: what was measured, what was promised, and whether it holds.

use std::fmt::Display;
use std::fs;

#[derive(Default)]
pub(crate) struct Report {
    missed: usize,
}

impl Report {
    /// One row. `holds` is the promise; a row without a limit is only shown.
    pub(crate) fn row(&mut self, what: &str, measured: impl Display, limit: impl Display, holds: bool) {
        self.missed += usize::from(!holds);
        let verdict = if holds { "ok" } else { "MISSED" };
        println!("{what:<42} {measured:>28}   {limit:<34} {verdict}");
    }

    pub(crate) fn note(&self, what: &str, measured: impl Display) {
        println!("{what:<42} {measured:>28}");
    }

    pub(crate) fn binary_size(&mut self, binary: &str) {
        let size = fs::metadata(binary).unwrap().len();
        // What armv7 has to keep within, 32 bits make smaller.
        let limit = if cfg!(target_pointer_width = "32") { 3 << 20 } else { 4 << 20 };
        self.row("binary, stripped", format!("{size} bytes"), format!("at most {limit}"), size <= limit);
    }

    pub(crate) fn finish(&self) {
        match self.missed {
            0 => println!("every promise held"),
            missed => println!("{missed} promises missed"),
        }
    }
}
