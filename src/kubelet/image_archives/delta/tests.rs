use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::kubelet::image_archives::archive_list::Failure;
use crate::kubelet::image_archives::manifest::Digest;
use crate::kubelet::image_archives::tar_header::{TAR_BLOCK_BYTES, header, padding};
use crate::types::sorted::{SortedMap, SortedSet};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("coracle-delta-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn run(&self, line: &str) {
        let done = Command::new("sh").args(["-ec", line]).current_dir(&self.0).status().unwrap();
        assert!(done.success(), "{line}");
    }

    /// An archive of docker's, of layers that are tars with one file each.
    fn docker(&self, name: &str, layers: &[&[u8]]) -> PathBuf {
        let layers: Vec<Vec<u8>> = layers.iter().map(|content| Self::layer(content)).collect();
        let ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        fs::write(self.0.join("config.json"), config(&ids)).unwrap();
        let files: Vec<String> = (0..layers.len()).map(|at| format!("{at}.tar")).collect();
        for (file, layer) in files.iter().zip(&layers) {
            fs::write(self.0.join(file), layer).unwrap();
        }
        let manifest = json!([{"Config": "config.json", "RepoTags": [format!("r.io/{name}")], "Layers": files}]);
        fs::write(self.0.join("manifest.json"), manifest.to_string()).unwrap();
        let archive = name.replace(':', "-") + ".tar";
        self.run(&format!("tar -cf {archive} config.json manifest.json {}", files.join(" ")));
        self.0.join(archive)
    }

    /// The same as an OCI layout, with its layers packed by gzip.
    fn oci(&self, name: &str, layers: &[&[u8]]) -> PathBuf {
        self.run("rm -rf blobs; mkdir -p blobs/sha256");
        let put = |bytes: &[u8], kind: &str| {
            let digest = Digest::of(bytes);
            fs::write(self.0.join("blobs/sha256").join(digest.hex()), bytes).unwrap();
            json!({"mediaType": kind, "digest": digest.to_string(), "size": bytes.len()})
        };
        let layers: Vec<Vec<u8>> = layers.iter().map(|content| Self::layer(content)).collect();
        let ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let blobs: Vec<Value> = layers.iter().map(|layer| put(&self.packed(layer), "layer.tar+gzip")).collect();
        let config = put(config(&ids).as_bytes(), "config");
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": blobs}).to_string();
        let mut top = put(manifest.as_bytes(), "application/vnd.oci.image.manifest.v1+json");
        top["annotations"] = json!({"io.containerd.image.name": format!("r.io/{name}")});
        fs::write(self.0.join("index.json"), json!({"manifests": [top]}).to_string()).unwrap();
        fs::write(self.0.join("oci-layout"), "{}").unwrap();
        let archive = name.replace(':', "-") + ".tar";
        self.run(&format!("tar -cf {archive} oci-layout index.json blobs"));
        self.0.join(archive)
    }

    /// Always the same bytes for a content, whose digest is the layer's name.
    fn layer(content: &[u8]) -> Vec<u8> {
        let size = u64::try_from(content.len()).unwrap();
        [&header("file", size).unwrap(), content, padding(size), &[0; 2 * TAR_BLOCK_BYTES]].concat()
    }

    fn packed(&self, bytes: &[u8]) -> Vec<u8> {
        fs::write(self.0.join("plain"), bytes).unwrap();
        self.run("cat plain | gzip -c >plain.gz");
        fs::read(self.0.join("plain.gz")).unwrap()
    }

    fn delta(&self, old: &Path, new: &Path) -> (PathBuf, DeltaSummary) {
        let target = self.0.join("x.delta");
        let summary = make_delta(old, new, &target).unwrap();
        (target, summary)
    }

    /// The tar that a node makes of a delta, whose runtime has these blobs.
    fn rebuild(&self, delta: &Path, blobs: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
        let delta = DeltaFile::open(File::open(delta).unwrap())?.unwrap();
        let store: SortedMap<String, Vec<u8>> =
            blobs.iter().map(|blob| (Digest::of(blob).to_string(), blob.clone())).collect();
        let mut sources = Sources { present: SortedSet::from_iter(store.keys().cloned()), old: SortedMap::new() };
        for (layer, hint) in delta.needed(&sources.present) {
            let names = [Some(layer.to_string()), hint.map(|hint| hint.to_string())];
            let found = names.into_iter().flatten().find(|name| store.contains_key(name));
            let found = found.ok_or_else(|| Failure::Lacks(delta.lacks(&layer, &sources.present)))?;
            sources.old.insert(layer, found);
        }
        let fetch = |blob: &str, target: &mut File| {
            target.write_all(&store[blob]).unwrap();
            Ok(())
        };
        let mut tar = Vec::new();
        rebuild(&delta, &sources, &self.0, &fetch, &mut tar).map(|written| {
            written.unwrap();
            tar
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(ids: &[String]) -> String {
    json!({"os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}}).to_string()
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap()
    };
    (0..length).map(|_| next()).collect()
}

/// The files of a tar.
fn files(folder: &Folder, tar: &[u8]) -> SortedMap<String, Vec<u8>> {
    let place = folder.0.join("made");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("made.tar"), tar).unwrap();
    folder.run("cd made && tar -xf made.tar && rm made.tar");
    let blobs = fs::read_dir(place.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap());
    let blobs = blobs.map(|entry| {
        let digest = format!("sha256:{}", entry.file_name().to_string_lossy());
        (digest, fs::read(entry.path()).unwrap())
    });
    let mut files: SortedMap<String, Vec<u8>> = blobs.collect();
    for (digest, bytes) in files.iter() {
        assert_eq!(Digest::of(bytes).to_string(), *digest);
    }
    files.insert("index.json".to_owned(), fs::read(place.join("index.json")).unwrap());
    files
}

/// The manifest, and its digest.
fn manifest(files: &SortedMap<String, Vec<u8>>) -> (Value, String) {
    let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    (serde_json::from_slice(&files[&digest]).unwrap(), digest)
}

fn changed(bytes: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for at in (0..changed.len()).step_by(1000) {
        changed[at] ^= 5;
    }
    changed
}

#[test]
fn docker_archives_give_a_patch_that_makes_the_image() {
    let folder = Folder::new("docker");
    let (base, app) = (noise(1, 50_000), noise(2, 200_000));
    let new_app = changed(&app);
    let old = folder.docker("old:1", &[&base, &app]);
    let new = folder.docker("new:2", &[&base, &new_app, b"more"]);
    let (delta, summary) = folder.delta(&old, &new);
    assert!(summary.delta_bytes < 10_000, "{summary:?}");
    assert_eq!((summary.patched, summary.whole, &*summary.image), (2, 0, "r.io/new:2"));

    let blobs = [Folder::layer(&base), Folder::layer(&app)];
    let tar = folder.rebuild(&delta, &blobs).unwrap();
    let files = files(&folder, &tar);
    let (document, _) = manifest(&files);
    let layers = [&base, &new_app, &b"more".to_vec()].map(|content| Folder::layer(content));
    let digests: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let of_manifest = document["layers"].as_array().unwrap().iter().map(|layer| layer["digest"].as_str().unwrap());
    assert!(of_manifest.eq(digests.iter().map(String::as_str)), "{document}");
    assert_eq!(document["config"]["digest"], Digest::of(config(&digests).as_bytes()).to_string());
    // The first layer stays where it is.
    assert!(!files.contains_key(&digests[0]) && files.contains_key(&digests[1]));
}

#[test]
fn packed_layers_are_unpacked_and_whole_ones_keep_their_digest() {
    let folder = Folder::new("oci");
    let (base, app, other) = (noise(1, 50_000), noise(2, 100_000), noise(3, 70_000));
    let old = folder.oci("old:1", &[&base, &app]);
    let (patched, added) =
        (folder.oci("patched:2", &[&base, &changed(&app)]), folder.oci("added:2", &[&base, &app, &other]));
    let blobs = [&base, &app].map(|content| folder.packed(&Folder::layer(content)));

    let (delta, summary) = folder.delta(&old, &patched);
    assert!(summary.patched == 1 && summary.delta_bytes < 10_000, "{summary:?}");
    let tar = folder.rebuild(&delta, &blobs).unwrap();
    let (document, _) = manifest(&files(&folder, &tar));
    assert_eq!(document["layers"][0]["digest"], Digest::of(&blobs[0]).to_string());
    assert_eq!(document["layers"][1]["digest"], Digest::of(&Folder::layer(&changed(&app))).to_string());

    let (delta, summary) = folder.delta(&old, &added);
    assert_eq!((summary.patched, summary.whole), (0, 1));
    let tar = folder.rebuild(&delta, &blobs).unwrap();
    let (_, digest) = manifest(&files(&folder, &tar));
    folder.run("rm -rf whole; mkdir whole; tar -C whole -xf added-2.tar");
    assert!(
        folder.0.join("whole/blobs/sha256").join(digest.trim_start_matches("sha256:")).exists(),
        "the manifest is another one"
    );
}

#[test]
fn node_without_the_older_image_is_told_what_is_missing() {
    let folder = Folder::new("lacks");
    let app = noise(2, 100_000);
    let (old, new) = (folder.docker("old:1", &[&app]), folder.docker("new:2", &[&changed(&app)]));
    let (delta, _) = folder.delta(&old, &new);
    let old_config = config(&[Digest::of(&Folder::layer(&app)).to_string()]);
    let id = Digest::of(old_config.as_bytes());
    let lacks = |blobs: &[Vec<u8>]| folder.rebuild(&delta, blobs).unwrap_err();
    let image = format!("image r.io/old:1 (config {id})");
    assert_eq!(lacks(&[]), Failure::Lacks(format!("needs {image}, which the node does not have")));
    let Failure::Lacks(why) = lacks(&[old_config.into_bytes()]) else { panic!() };
    assert!(why.contains("which the runtime has not kept"), "{why}");
    // A node that has the new layer needs nothing.
    folder.rebuild(&delta, &[Folder::layer(&changed(&app))]).unwrap();
}

#[test]
fn archives_that_cannot_be_compared_are_refused() {
    let folder = Folder::new("refused");
    let (one, other) = (folder.docker("one:1", &[b"1"]), folder.oci("other:1", &[b"1", b"2"]));
    let target = folder.0.join("x.delta");
    let refused = |old: &Path, new: &Path| make_delta(old, new, &target).unwrap_err().to_string();
    assert_eq!(refused(&one, &one), "both archives have the same image");
    fs::write(folder.0.join("text"), "hello").unwrap();
    assert!(
        refused(&one, &folder.0.join("text"))
            .ends_with("text: it is not a tar archive, plain or compressed with gzip or zstd")
    );
    folder.run("mkdir two; tar -C two -xf other-1.tar; find two/blobs -type f | head -n 1 | xargs rm; tar -C two -cf two.tar .");
    assert!(make_delta(&one, &folder.0.join("two.tar"), &target).is_err());
    assert!(refused(&one, &folder.0.join("nothing")).contains("cannot be read: "));
    fs::write(folder.0.join("manifest.json"), r#"[{"RepoTags":["a:1"]},{"RepoTags":["b:1"]}]"#).unwrap();
    folder.run("tar -cf several.tar manifest.json");
    assert!(refused(&other, &folder.0.join("several.tar")).ends_with("expected an archive of one image"));
    assert!(!target.exists() && !folder.0.join("x.delta.part").exists());
}

/// Any change of a delta is refused, or changes nothing of the image.
#[test]
fn damaged_deltas_give_no_other_image() {
    let folder = Folder::new("damaged");
    let app = noise(2, 4000);
    let (old, new) = (folder.oci("old:1", &[&app]), folder.oci("new:2", &[&changed(&app), &noise(5, 300)]));
    let (delta, _) = folder.delta(&old, &new);
    let whole = fs::read(&delta).unwrap();
    let blobs = [folder.packed(&Folder::layer(&app))];
    let expected = folder.rebuild(&delta, &blobs).unwrap();
    let (document, _) = manifest(&files(&folder, &expected));
    let damaged = folder.0.join("damaged.delta");
    let mut refused = 0;
    for at in (DELTA_MAGIC.len()..whole.len()).step_by(11) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&damaged, bytes).unwrap();
        match folder.rebuild(&damaged, &blobs) {
            Ok(tar) if tar == expected => {}
            Ok(tar) => {
                // Names and media types are not part of the image.
                let (other, _) = manifest(&files(&folder, &tar));
                assert_eq!(other["config"]["digest"], document["config"]["digest"], "byte {at}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > whole.len() / 30, "{refused} refused");
    for length in (0..whole.len()).step_by(7) {
        let file = File::create(&damaged).unwrap();
        file.write_all_at(&whole[..length], 0).unwrap();
        match DeltaFile::open(File::open(&damaged).unwrap()) {
            Ok(None) => assert!(length < DELTA_MAGIC.len()),
            opened => assert!(opened.is_err(), "{length} bytes"),
        }
    }
}
