//! The OCI layout of a fetched image, as a directory and as a tar stream.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::kubelet::image_archives::manifest::{Descriptor, Digest, OCI_LAYOUT, layout_index};
use crate::kubelet::image_archives::tar_header::{TAR_BLOCK_BYTES, header, padding};

/// The directory of an image that is being fetched.
#[derive(Clone, Debug)]
pub(super) struct Layout(pub(super) PathBuf);

impl Layout {
    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.0.join(BLOBS)
    }

    /// Writes the index with the image's names.
    pub(super) fn write_index(&self, top: &Descriptor, names: &[String]) -> io::Result<()> {
        let index = layout_index(names.iter().map(|name| (name.as_str(), top)));
        fs::write(self.0.join(INDEX), index)?;
        fs::write(self.0.join(OCI_LAYOUT_FILE), OCI_LAYOUT)
    }

    /// Writes the layout as a tar, with the blobs in the directory.
    pub(super) fn write_tar(&self, sink: &mut dyn Write) -> io::Result<()> {
        for name in [OCI_LAYOUT_FILE, INDEX] {
            add(sink, name, &self.0.join(name))?;
        }
        for entry in fs::read_dir(self.blobs())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_none() {
                add(sink, &format!("{BLOBS}/{name}"), &entry.path())?;
            }
        }
        // Two empty blocks mark the end.
        sink.write_all(&[0; 2 * TAR_BLOCK_BYTES])
    }
}

const BLOBS: &str = "blobs/sha256";
const INDEX: &str = "index.json";
const OCI_LAYOUT_FILE: &str = "oci-layout";

fn add(sink: &mut dyn Write, name: &str, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    sink.write_all(&header(name, size).ok_or_else(|| io::Error::other(format!("{name} is too large for a tar")))?)?;
    let copied = io::copy(&mut file, sink)?;
    if copied != size {
        return Err(io::Error::other(format!("{name} has changed")));
    }
    sink.write_all(padding(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_has_the_index_and_whole_blobs() {
        let folder = std::env::temp_dir().join(format!("coracle-layout-{}", std::process::id()));
        let layout = Layout(folder.clone());
        fs::create_dir_all(layout.blobs()).unwrap();
        let blob = Digest::of(b"blob");
        fs::write(layout.blob(&blob), b"blob").unwrap();
        fs::write(layout.blob(&Digest::of(b"x")).with_extension("part"), b"part").unwrap();
        let top = Descriptor { digest: blob.clone(), size: 4, media_type: "m".to_owned() };
        layout.write_index(&top, &["r.io/a:1".to_owned()]).unwrap();
        let mut tar = Vec::new();
        layout.write_tar(&mut tar).unwrap();
        fs::write(folder.join("x.tar"), &tar).unwrap();
        let list = std::process::Command::new("tar").args(["-tf", "x.tar"]).current_dir(&folder).output().unwrap();
        let names = String::from_utf8(list.stdout).unwrap();
        assert_eq!(names, format!("oci-layout\nindex.json\nblobs/sha256/{}\n", blob.hex()));
        let mut contents = crate::kubelet::image_archives::contents::Contents::default();
        contents.push(&tar).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
