//! Patches of layers in deltas, an untrusted input.

use std::io;

use coracle::kubelet::image_archives::delta::patch::{Base, Patch, apply};

/// A patch gives at most the bytes that were asked for, and reads nothing outside of the older layer.
pub(crate) fn check(data: &[u8]) {
    let Some((&length, data)) = data.split_first() else { return };
    let length = u64::from(length) * 64;
    let (base, data) = data.split_at(data.len() / 3);
    let (mut steps, mut data) = data.split_at(data.len() / 2);
    let mut inserts = data;
    let read = |at: u64, out: &mut [u8]| {
        let at = usize::try_from(at).expect("a position");
        out.copy_from_slice(&base[at..at + out.len()]);
        Ok(())
    };
    let base = Base { length: u64::try_from(base.len()).expect("a length"), read: &read };
    let patch = Patch { steps: &mut steps, differences: &mut data, inserts: &mut inserts };
    let mut written = 0;
    let mut write = |bytes: &[u8]| {
        written += u64::try_from(bytes.len()).map_err(io::Error::other)?;
        Ok(())
    };
    let applied = apply(patch, &base, length, &mut write);
    assert!(if applied.is_ok() { written == length } else { written < length });
}
