//! Manifests in the layers of an OCI artifact: one file, or a gzipped tar of files, as Flux makes it. Pure.

use std::borrow::Cow;

use crate::kubelet::image_archives::artifact::{self, ArtifactFile};
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::kubelet::image_archives::tar_header::TAR_BLOCK_BYTES;
use crate::protocol::gzip;
use crate::types::sorted::SortOnce;

/// Longest text of a bundle.
const MAX_BUNDLE_TEXT_BYTES: usize = 1 << 20;
/// Longest tar of a bundle.
const MAX_BUNDLE_BYTES: usize = 8 << 20;
const MAX_BUNDLE_LAYER_BYTES: u64 = 1 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The layer with the manifests.
pub(super) fn manifests(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    let file = artifact::content(files)?;
    match file.blob.size > MAX_BUNDLE_LAYER_BYTES {
        true => Err(format!("it has more than {MAX_BUNDLE_LAYER_BYTES} bytes")),
        false => Ok(vec![file.blob.clone()]),
    }
}

/// The layer with the manifests, and its signature.
pub(super) fn signed_manifests(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    let mut chosen = manifests(files)?;
    let signature = artifact::signature(files, artifact::content(files)?)?;
    match signature.blob.size > MAX_BUNDLE_LAYER_BYTES {
        true => Err("the signature is too long".to_owned()),
        false => {
            chosen.push(signature.blob.clone());
            Ok(chosen)
        }
    }
}

/// The text of the manifests: of a gzipped tar, its files named `.yaml`, `.yml` and `.json`, in the order of their names.
/// The error is one line.
pub(super) fn text(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !bytes.starts_with(&GZIP_MAGIC) {
        return Ok(Cow::Borrowed(bytes));
    }
    let tar = gzip::inflate(bytes, MAX_BUNDLE_BYTES).map_err(|error| format!("the bundle: {error}"))?;
    let mut files = bundle_files(&tar).ok_or("the bundle is no gzipped tar, or is cut short")?;
    files.sort_once();
    let mut text = Vec::new();
    for (_, content) in files {
        text.extend_from_slice(b"---\n");
        text.extend_from_slice(content);
        text.push(b'\n');
    }
    if text.len() > MAX_BUNDLE_TEXT_BYTES {
        return Err(format!("the bundle's manifests have more than {MAX_BUNDLE_TEXT_BYTES} bytes"));
    }
    Ok(Cow::Owned(text))
}

/// Names and contents of the manifests in a tar; `None` if it is malformed.
fn bundle_files(tar: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let mut files = Vec::new();
    let mut rest = tar;
    // The name in a PAX header before the file.
    let mut long_name = None;
    loop {
        let (header, after) = rest.split_at_checked(TAR_BLOCK_BYTES)?;
        if header.iter().all(|byte| *byte == 0) {
            return Some(files);
        }
        let field = |from: usize, to: usize| {
            let bytes = header.get(from..to)?;
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            std::str::from_utf8(bytes.get(..end)?).ok()
        };
        let size = usize::from_str_radix(field(124, 136)?.trim(), 8).ok()?;
        let (content, after) = after.split_at_checked(size)?;
        let kind = *header.get(156)?;
        match kind {
            b'x' => long_name = pax_path(content),
            b'0' | 0 => {
                let short =
                    || Some([field(345, 500)?, "/", field(0, 100)?].concat().trim_start_matches('/').to_owned());
                let name = long_name.take().or_else(short)?;
                if [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
                    files.push((name, content));
                }
            }
            _ => long_name = None,
        }
        rest = after.get(size.next_multiple_of(TAR_BLOCK_BYTES) - size..)?;
    }
}

/// `LENGTH path=NAME` among the lines of a PAX header.
fn pax_path(content: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(content).ok()?;
    text.lines().find_map(|line| Some(line.split_once(' ')?.1.strip_prefix("path=")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::kubelet::image_archives::tar_header::small_tar;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_manifest_is_its_own_text() {
        assert_eq!(&*text(b"kind: Pod\n").unwrap(), b"kind: Pod\n");
        assert_eq!(&*text(b"").unwrap(), b"");
    }

    #[test]
    fn bundle_has_its_manifests_in_the_order_of_their_names() {
        let tar = small_tar(&[("b.yaml", "two"), ("README.md", "no"), ("a/c.yml", "one"), ("z.json", "{}")]).unwrap();
        assert_eq!(&*text(&gzip(&tar)).unwrap(), b"---\none\n---\ntwo\n---\n{}\n");
        assert_eq!(&*text(&gzip(&small_tar(&[]).unwrap())).unwrap(), b"");
    }

    #[test]
    fn long_names_and_folders_of_a_real_tar_are_read() {
        let folder = std::env::temp_dir().join(format!("coracle-bundle-{}", std::process::id()));
        let name = format!("{}/pod.yaml", "n".repeat(120));
        std::fs::create_dir_all(folder.join("n".repeat(120))).unwrap();
        std::fs::write(folder.join(&name), "long").unwrap();
        std::fs::write(folder.join("a.yaml"), "short").unwrap();
        let tar = std::process::Command::new("tar")
            .args(["-cz", "--format=pax", "-f", "-", "--exclude=./x", "."])
            .current_dir(&folder)
            .output();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(&*text(&tar.unwrap().stdout).unwrap(), b"---\nshort\n---\nlong\n");
    }

    #[test]
    fn cut_and_large_bundles_are_refused() {
        let tar = small_tar(&[("a.yaml", "one")]).unwrap();
        let zipped = gzip(&tar);
        assert!(text(&zipped[..zipped.len() - 9]).is_err());
        for cut in [100, 513, 600] {
            assert!(text(&gzip(&tar[..cut])).unwrap_err().contains("cut short"), "{cut}");
        }
        assert!(text(&gzip(&vec![0; 9 << 20])).unwrap_err().contains("more than 8388608 bytes"));
        let long = small_tar(&[("a.yaml", &"x".repeat(2 << 20))]).unwrap();
        assert!(text(&gzip(&long)).unwrap_err().contains("manifests have more than"));
        assert!(text(b"\x1f\x8b").unwrap_err().starts_with("the bundle: gzip: "));
    }
}
