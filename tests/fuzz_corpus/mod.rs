//! Runs the fuzz targets on their corpora and on deterministic mutations of them. `fuzz/run` searches further.

#[path = "../../fuzz/checks/mod.rs"]
mod checks;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use checks::*;

/// Mutated inputs per target.
const MUTATIONS: u64 = 2000;
/// The limit of `fuzz/run`.
const MAX_INPUT_BYTES: usize = 8192;

/// A SplitMix64 random number generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

#[track_caller]
fn run(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(!corpus.is_empty(), "no corpus for {target}");
    let mutations = (0..MUTATIONS).map(|seed| mutated(&corpus, seed));
    for input in corpus.iter().cloned().chain(mutations) {
        if catch_unwind(|| check(&input)).is_err() {
            panic!("{target} fails for {:?}", String::from_utf8_lossy(&input));
        }
    }
}

/// An input of the corpus with up to four changes: a byte, a cut, a repetition, or the end of another input.
fn mutated(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut input = corpus[numbers.below(corpus.len())].clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(input.len());
        match numbers.below(5) {
            0 => input.insert(at, u8::try_from(numbers.below(256)).unwrap()),
            1 if !input.is_empty() => input[at] ^= 1 << numbers.below(8),
            2 => input.truncate(at),
            3 => {
                let again = input[at..].to_vec();
                input.extend(again);
            }
            _ => {
                let other = &corpus[numbers.below(corpus.len())];
                input.truncate(at);
                input.extend(&other[numbers.below(other.len())..]);
            }
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

#[test]
fn archive_inputs_break_nothing() {
    run("archive", archive::check);
}

#[test]
fn container_files_inputs_break_nothing() {
    run("container_files", container_files::check);
}

#[test]
fn grpc_framing_inputs_break_nothing() {
    run("grpc_framing", grpc_framing::check);
}

#[test]
fn hpack_inputs_break_nothing() {
    run("hpack", hpack::check);
}

#[test]
fn http1_inputs_break_nothing() {
    run("http1", http1::check);
}

#[test]
fn http1_request_inputs_break_nothing() {
    run("http1_request", http1_request::check);
}

#[test]
fn http2_inputs_break_nothing() {
    run("http2", http2::check);
}

#[test]
fn manifest_inputs_break_nothing() {
    run("manifest", manifest::check);
}

#[test]
fn offline_record_inputs_break_nothing() {
    run("offline_record", offline_record::check);
}

#[test]
fn patch_inputs_break_nothing() {
    run("patch", patch::check);
}

#[test]
fn plugin_answers_inputs_break_nothing() {
    run("plugin_answers", plugin_answers::check);
}

#[test]
fn pod_fields_inputs_break_nothing() {
    run("pod_fields", pod_fields::check);
}

#[test]
fn protobuf_inputs_break_nothing() {
    run("protobuf", protobuf::check);
}

#[test]
fn registry_answers_inputs_break_nothing() {
    run("registry_answers", registry_answers::check);
}

#[test]
fn spdy_inputs_break_nothing() {
    run("spdy", spdy::check);
}

#[test]
fn x509_inputs_break_nothing() {
    run("x509", x509::check);
}
