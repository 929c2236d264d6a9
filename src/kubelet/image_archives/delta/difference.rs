//! Finds how a layer can be made from an older one. Pure.
//!
//! The method is that of bsdiff: a match is extended over bytes that differ for as long as most are equal, because a
//! program whose addresses have moved differs in a few bytes here and there. In place of a suffix array, an index has
//! the hashes of short pieces of the older layer, which is large and may be missed in part.

use super::patch::{Kind, Steps};

/// An older layer with the index of its pieces.
#[derive(Debug)]
pub(super) struct Matcher<'a> {
    old: &'a [u8],
    /// Number of a piece, plus one.
    index: Vec<u32>,
    /// Distance between two pieces.
    stride: usize,
    shift: u32,
}

/// Length of a piece.
const PIECE_BYTES: usize = 16;
/// Most pieces in the index, of four bytes each.
const MAX_INDEXED_PIECES: usize = 1 << 25;
/// The shortest and longest match. A longer one is continued by another match at its end.
const MIN_MATCH_BYTES: usize = 24;
const MAX_MATCH_BYTES: usize = 4096;
/// A match elsewhere is preferred to the continuation of the last one if it is longer by this number of bytes.
const BETTER_MATCH_BYTES: usize = 8;
/// Equal bytes in a row that are worth a step of their own.
const MIN_COPY_BYTES: usize = 256;

impl<'a> Matcher<'a> {
    pub(super) fn new(old: &'a [u8]) -> Self {
        let stride = (old.len() / MAX_INDEXED_PIECES + 1).max(4);
        let slots = (old.len() / stride * 2).next_power_of_two().max(2);
        let shift = 64 - slots.trailing_zeros();
        let mut matcher = Self { old, index: vec![0; slots], stride, shift };
        for (number, at) in (1..).zip((0..old.len().saturating_sub(PIECE_BYTES)).step_by(stride)) {
            let slot = matcher.slot(old, at);
            // The first of equal pieces stays: runs of one byte would fill the index otherwise.
            if let Some(slot) = slot.and_then(|slot| matcher.index.get_mut(slot)).filter(|slot| **slot == 0) {
                *slot = number;
            }
        }
        matcher
    }

    fn slot(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let piece: [u8; PIECE_BYTES] = bytes.get(at..at + PIECE_BYTES)?.try_into().ok()?;
        let piece = u128::from_le_bytes(piece);
        let low = u64::try_from(piece & u128::from(u64::MAX)).unwrap_or_default();
        let high = u64::try_from(piece >> 64).unwrap_or_default();
        let mixed = (low.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ high).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> self.shift).ok()
    }

    /// Where the older layer has the bytes at `at`, and how many.
    fn find(&self, new: &[u8], at: usize) -> (usize, usize) {
        let number = self.slot(new, at).and_then(|slot| self.index.get(slot)).copied().unwrap_or(0);
        let Some(number) = number.checked_sub(1) else { return (0, 0) };
        let from = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(self.stride);
        let equal = equal(self.old, from, new, at);
        if equal < MIN_MATCH_BYTES { (0, 0) } else { (from, equal) }
    }

    /// The steps that make `new`.
    pub(super) fn difference(&self, new: &[u8]) -> Steps {
        let old = self.old;
        let mut steps = Steps::default();
        // The last match: where it began in both, and what comes next.
        let (mut from, mut begun) = (0, 0);
        let (mut at, mut found, mut length) = (0, 0, 0);
        while at < new.len() {
            at += length;
            // Equal bytes between `at` and `counted` if the last match goes on.
            let (mut score, mut counted) = (0, at);
            // The difference of positions in the last match.
            let goes_on = |place: usize| {
                let there = (from + place).checked_sub(begun)?;
                Some(old.get(there)? == new.get(place)?)
            };
            while at < new.len() {
                (found, length) = self.find(new, at);
                while counted < at + length {
                    score += usize::from(goes_on(counted) == Some(true));
                    counted += 1;
                }
                if length > 0 && length == score || length > score + BETTER_MATCH_BYTES {
                    break;
                }
                if counted > at {
                    score -= usize::from(goes_on(at) == Some(true));
                }
                at += 1;
                counted = counted.max(at);
            }
            if length == score && at < new.len() {
                // The last match goes on.
                continue;
            }
            let ahead = reach(new.len().min(at) - begun, |step| Some(old.get(from + step)? == new.get(begun + step)?));
            let backwards = |step| Some(old.get(found - step - 1)? == new.get(at - step - 1)?);
            let back = if at < new.len() { reach((at - begun).min(found), backwards) } else { 0 };
            let (ahead, back) = parted(old, new, (from, begun, ahead), (found, at, back));
            add(&mut steps, old.get(from..from + ahead), new.get(begun..begun + ahead), from);
            let end = at - back;
            if let Some(bytes @ [_, ..]) = new.get(begun + ahead..end) {
                steps.insert(bytes);
            }
            (from, begun) = (found.saturating_sub(back), end);
        }
        steps
    }
}

/// How far a match reaches over bytes that differ: where it has the most equal bytes over different ones.
fn reach(limit: usize, is_equal: impl Fn(usize) -> Option<bool>) -> usize {
    let (mut score, mut best, mut length): (i64, i64, usize) = (0, 0, 0);
    for step in 0..limit {
        let Some(is_equal) = is_equal(step) else { break };
        score += if is_equal { 1 } else { -1 };
        if score > best {
            (best, length) = (score, step + 1);
        }
    }
    length
}

/// Divides the bytes that two matches both reach, so that each has those that it fits better.
fn parted(
    old: &[u8],
    new: &[u8],
    (from, begun, ahead): (usize, usize, usize),
    (found, at, back): (usize, usize, usize),
) -> (usize, usize) {
    let overlap = (begun + ahead).saturating_sub(at - back);
    if overlap == 0 {
        return (ahead, back);
    }
    let (mut score, mut best, mut kept): (i64, i64, usize) = (0, 0, 0);
    for step in 0..overlap {
        let place = at - back + step;
        let byte = new.get(place);
        score += i64::from(byte == old.get(from + (place - begun)));
        score -= i64::from(byte == old.get(found - (at - place)));
        if score > best {
            (best, kept) = (score, step + 1);
        }
    }
    (ahead - overlap + kept, back - kept)
}

/// Steps for a match: copies of long equal runs, additions of what is between them.
fn add(steps: &mut Steps, old: Option<&[u8]>, new: Option<&[u8]>, from: usize) {
    let (Some(old), Some(new)) = (old, new) else { return };
    let position = |at: usize| u64::try_from(from + at).unwrap_or(u64::MAX);
    let length = |from: usize, to: usize| u64::try_from(to - from).unwrap_or(u64::MAX);
    let (mut done, mut at) = (0, 0);
    let added = |steps: &mut Steps, done: usize, end: usize| {
        if end > done {
            steps.read(Kind::Add, position(done), length(done, end));
            let old = old.get(done..end).unwrap_or_default().iter();
            let pairs = old.zip(new.get(done..end).unwrap_or_default());
            steps.differences.extend(pairs.map(|(old, new)| new.wrapping_sub(*old)));
        }
    };
    while at < new.len() {
        let rest = old.get(at..).unwrap_or_default().iter().zip(new.get(at..).unwrap_or_default());
        let run = rest.take_while(|(old, new)| old == new).count();
        if run >= MIN_COPY_BYTES {
            added(steps, done, at);
            steps.read(Kind::Copy, position(at), length(at, at + run));
            done = at + run;
        }
        at += run + 1;
    }
    added(steps, done, new.len());
}

/// Number of equal bytes, up to [`MAX_MATCH_BYTES`].
fn equal(old: &[u8], from: usize, new: &[u8], at: usize) -> usize {
    let old = old.get(from..).unwrap_or_default().iter();
    old.zip(new.get(at..).unwrap_or_default()).take(MAX_MATCH_BYTES).take_while(|(old, new)| old == new).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::image_archives::delta::patch::{Base, Patch, apply};

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(state >> 56).unwrap()
        };
        (0..length).map(|_| next()).collect()
    }

    /// The new bytes that the patch carries, after it has been applied.
    #[track_caller]
    fn carried(old: &[u8], new: &[u8]) -> (usize, usize) {
        let steps = Matcher::new(old).difference(new);
        let read = |at: u64, bytes: &mut [u8]| {
            let at = usize::try_from(at).unwrap();
            bytes.copy_from_slice(&old[at..at + bytes.len()]);
            Ok(())
        };
        let base = Base { length: old.len() as u64, read: &read };
        let (mut one, mut two, mut three) = (&*steps.steps, &*steps.differences, &*steps.inserts);
        let patch = Patch { steps: &mut one, differences: &mut two, inserts: &mut three };
        let mut made = Vec::new();
        apply(patch, &base, new.len() as u64, &mut |bytes| {
            made.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert!(made == new, "{} and {} bytes", made.len(), new.len());
        assert!(one.is_empty() && two.is_empty() && three.is_empty());
        (steps.inserts.len(), steps.steps.len())
    }

    #[test]
    fn patch_makes_the_new_layer_from_the_old_one() {
        let old = noise(1, 100_000);
        let (start, end) = old.split_at(50_000);
        assert_eq!(carried(&old, &old).0, 0);
        assert_eq!(carried(&old, &[]), (0, 0));
        assert_eq!(carried(&[], &old).0, old.len());
        assert_eq!(carried(&old, &[end, start].concat()).0, 0, "moved parts");
        let more = noise(2, 777);
        let between = carried(&old, &[start, &more, end].concat()).0;
        assert!((700..=777).contains(&between), "{between} inserted");
        assert_eq!(carried(&old, &[&start[..3000], &end[9..]].concat()).0, 0, "removed parts");
        assert_eq!(carried(&old, &noise(3, 5000)).0, 5000);
        for length in 0..60 {
            carried(&old[..length], &old[3..length.max(3) + 1]);
            carried(&vec![0; length * 100], &vec![0; length * 77]);
        }
    }

    #[test]
    fn bytes_that_differ_here_and_there_are_added() {
        let old = noise(1, 200_000);
        let mut new = old.clone();
        for at in (50_000..150_000).step_by(40) {
            new[at] = new[at].wrapping_add(8);
        }
        let (inserted, steps) = carried(&old, &new);
        assert!(inserted < 100 && steps < 100, "{inserted} inserted, {steps} for the steps");
    }

    #[test]
    fn repetitions_take_no_long_time() {
        let old: Vec<u8> = noise(1, 37).into_iter().cycle().take(1 << 20).collect();
        let mut new = vec![0; 1 << 20];
        for (at, byte) in new.iter_mut().enumerate().filter(|(at, _)| at % 4099 == 0) {
            *byte = u8::try_from(at % 251).unwrap();
        }
        carried(&old, &new);
        carried(&new, &[&new[7..], &old[5..]].concat());
    }
}
