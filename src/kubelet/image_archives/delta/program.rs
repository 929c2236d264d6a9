//! Deltas between two files that are no images, such as programs of the agent.
//!
//! ```text
//! coracle file delta 1
//! {"old": SHA256, "new": SHA256, "length": BYTES, "sections": [BYTES, BYTES, BYTES]}
//! the three streams of the patch, each packed by gzip
//! ```

use std::io::{self, BufReader, Write as _};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde_json::{Value, json};

use super::difference::Matcher;
use super::error::DeltaError;
use super::make::gzip;
use super::patch::{Base, Patch, apply};
use crate::protocol::sha256::sha256;

const FILE_DELTA_MAGIC: &[u8] = b"coracle file delta 1\n";
/// Longest file that a delta makes.
const MAX_REBUILT_BYTES: u64 = 64 << 20;

/// The delta from which [`FileDelta::rebuild`] makes `new`. `directory` is for unnamed files.
pub(crate) fn make_file_delta(old: &[u8], new: &[u8], directory: &Path) -> Result<Vec<u8>, DeltaError> {
    let steps = Matcher::new(old).difference(new);
    let mut sections = Vec::new();
    for bytes in [&steps.steps, &steps.differences, &steps.inserts] {
        let mut packed = Vec::new();
        gzip(bytes, directory, &mut packed)?;
        sections.push(packed);
    }
    let lengths: Vec<usize> = sections.iter().map(Vec::len).collect();
    let head = json!({ "old": sha256(old), "new": sha256(new), "length": new.len(), "sections": lengths });
    let mut delta = FILE_DELTA_MAGIC.to_vec();
    writeln!(delta, "{head}").map_err(DeltaError::Io)?;
    delta.extend(sections.concat());
    Ok(delta)
}

/// The head of a delta, and its packed streams.
#[derive(Debug)]
pub(crate) struct FileDelta<'a> {
    /// SHA-256 of the older file.
    pub(crate) old: String,
    new: String,
    length: u64,
    sections: [&'a [u8]; 3],
}

impl<'a> FileDelta<'a> {
    /// `None` if it is no delta. The error is one line.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Result<Self, String>> {
        let rest = bytes.strip_prefix(FILE_DELTA_MAGIC)?;
        Some(Self::parse(rest).ok_or_else(|| DAMAGED_DELTA.to_owned()))
    }

    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (head, rest) = bytes.split_at_checked(end)?;
        let head: Value = serde_json::from_slice(head).ok()?;
        let text = |key| head.get(key).and_then(Value::as_str).map(str::to_owned);
        let mut rest = rest.get(1..)?;
        let mut sections = [&[][..]; 3];
        let lengths = head.get("sections")?.as_array().filter(|lengths| lengths.len() == sections.len())?;
        for (section, length) in sections.iter_mut().zip(lengths) {
            (*section, rest) = rest.split_at_checked(usize::try_from(length.as_u64()?).ok()?)?;
        }
        let length = head.get("length")?.as_u64().filter(|length| *length <= MAX_REBUILT_BYTES)?;
        Some(Self { old: text("old")?, new: text("new")?, length, sections })
    }

    /// The new file. The error is one line.
    pub(crate) fn rebuild(&self, old: &[u8]) -> Result<Vec<u8>, String> {
        if sha256(old) != self.old {
            return Err(format!("it is a delta for another program ({})", self.old));
        }
        let [steps, differences, inserts] = self.sections.map(|section| BufReader::new(MultiGzDecoder::new(section)));
        let (mut steps, mut differences, mut inserts) = (steps, differences, inserts);
        let patch = Patch { steps: &mut steps, differences: &mut differences, inserts: &mut inserts };
        let read = |at: u64, out: &mut [u8]| {
            let from = usize::try_from(at).map_err(io::Error::other)?;
            let bytes = from.checked_add(out.len()).and_then(|end| old.get(from..end));
            out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        let base = Base { length: u64::try_from(old.len()).unwrap_or(u64::MAX), read: &read };
        let mut new = Vec::new();
        let mut write = |bytes: &[u8]| {
            new.extend_from_slice(bytes);
            Ok(())
        };
        apply(patch, &base, self.length, &mut write).map_err(|error| error.to_string())?;
        if sha256(&new) == self.new { Ok(new) } else { Err(DAMAGED_DELTA.to_owned()) }
    }
}

const DAMAGED_DELTA: &str = "it is a damaged delta";

#[cfg(test)]
mod tests {
    use super::*;

    /// A program, and one in which a function has moved and addresses have changed.
    fn programs() -> (Vec<u8>, Vec<u8>) {
        let mut seed = 7_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_be_bytes()[0]
        };
        let old: Vec<u8> = (0..200_000).map(|_| noise()).collect();
        let added: Vec<u8> = (0..500).map(|_| noise()).collect();
        let mut new = [&old[..50_000], &added, &old[50_000..]].concat();
        new.iter_mut().step_by(977).for_each(|byte| *byte = byte.wrapping_add(3));
        (old, new)
    }

    fn rebuild(delta: &[u8], old: &[u8]) -> Result<Vec<u8>, String> {
        FileDelta::read(delta).expect("it is a delta")?.rebuild(old)
    }

    #[test]
    fn delta_is_small_and_makes_the_new_program() {
        let (old, new) = programs();
        let delta = make_file_delta(&old, &new, &std::env::temp_dir()).unwrap();
        assert!(delta.len() < new.len() / 20, "{} bytes", delta.len());
        assert_eq!(rebuild(&delta, &old).unwrap(), new);
        let error = rebuild(&delta, &new).unwrap_err();
        assert_eq!(error, format!("it is a delta for another program ({})", sha256(&old)));
        assert!(FileDelta::read(&new).is_none());
    }

    #[test]
    fn damaged_deltas_are_refused() {
        let (old, new) = programs();
        let delta = make_file_delta(&old, &new, &std::env::temp_dir()).unwrap();
        for cut in [FILE_DELTA_MAGIC.len(), 60, delta.len() / 2, delta.len() - 1] {
            assert!(rebuild(&delta[..cut], &old).is_err(), "{cut}");
        }
        let head = String::from_utf8_lossy(&delta).into_owned();
        let head = head.lines().nth(1).unwrap();
        for (from, to) in [("\"length\":200500", "\"length\":99999999999"), (&*sha256(&new), &*"a".repeat(64))] {
            let changed = head.replace(from, to);
            let rest = &delta[FILE_DELTA_MAGIC.len() + head.len()..];
            let other = [FILE_DELTA_MAGIC, changed.as_bytes(), rest];
            assert_eq!(rebuild(&other.concat(), &old).unwrap_err(), DAMAGED_DELTA, "{from}");
        }
        for at in (FILE_DELTA_MAGIC.len() + head.len() + 20..delta.len()).step_by(97) {
            let mut damaged = delta.clone();
            damaged[at] ^= 0x55;
            assert!(
                rebuild(&damaged, &old).is_err_and(|line| !line.is_empty())
                    || rebuild(&damaged, &old) == Ok(new.clone())
            );
        }
    }
}
