//! Imports one archive into the runtime with the runtime's tool. The archive is piped into the tool's stdin, so no
//! copy and no name is passed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use super::archive_list::{ArchiveNames, Failure};
use super::contents::{ARCHIVE_HEAD_BYTES, ArchiveImages, BadArchive, Contents, Packing};
use super::layout_documents::{LayoutDocuments, MAX_LAYOUT_RECORD_BYTES, layout_record_name};
use super::manifest::{Descriptor, Digest, OCI_LAYOUT, layout_index};
use super::tar_header::small_tar;
use crate::platform::host::file::replace_within;
use crate::platform::host::program;
use crate::platform::rt;
use crate::types::architecture::{self, ARCHITECTURE, BUILD_FOR_THIS_MACHINE};
use crate::types::error::ErrorChain;

/// The import tool of a runtime.
#[derive(Clone, Debug)]
pub(crate) enum Tool {
    /// containerd's own tool, with the path of containerd's socket.
    Ctr(PathBuf),
    /// Writes to the image store shared by CRI-O and Podman.
    Skopeo,
}

impl Tool {
    /// The tool for the runtime with this name.
    pub(crate) fn of(runtime: &str, endpoint: &Path) -> Option<Self> {
        match runtime {
            "containerd" => Some(Self::Ctr(endpoint.to_owned())),
            "cri-o" | "crio" => Some(Self::Skopeo),
            _ => None,
        }
    }

    /// A command that prints the digests of the blobs that the runtime has; `None` if the tool cannot tell.
    pub(crate) fn list_blobs(&self) -> Option<Command> {
        let Self::Ctr(endpoint) = self else { return None };
        Some(ctr(endpoint, &["content", "list", "--quiet"]))
    }

    /// Gives the image with the name `from` the name `to`, too.
    pub(crate) async fn name_image(&self, from: &str, to: &str) -> Result<(), Failure> {
        let (tool, command) = match self {
            Self::Ctr(endpoint) => ("ctr", ctr(endpoint, &["images", "tag", "--force", from, to])),
            Self::Skopeo => {
                let mut command = skopeo();
                let [from, to] = [from, to].map(|name| ["containers-storage:", name].concat());
                command.args(["copy", "--quiet", &from, &to]);
                ("skopeo", command)
            }
        };
        check(tool, program::run(command, Vec::new(), ARCHIVE_IMPORT_TIMEOUT).await)
    }
}

/// Importing a large archive from a slow SD card takes minutes.
pub(super) const ARCHIVE_IMPORT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Imports the archive at `path`; returns the image names in it.
///
/// For images of an OCI layout, what the signature policy needs is kept in the directory `records`, if there is one.
pub(super) async fn import(tool: &Tool, path: PathBuf, records: Option<PathBuf>) -> Result<ArchiveNames, Failure> {
    match tool {
        Tool::Ctr(endpoint) => {
            let command = ctr(endpoint, &["images", "import", "-"]);
            let (sender, result) = async_channel::bounded(1);
            let feed = move |mut stdin: ChildStdin| {
                // The channel has capacity for one result.
                let _ = sender.try_send(pour(&path, &mut stdin));
            };
            let ended = program::run_fed(command, feed, ARCHIVE_IMPORT_TIMEOUT).await;
            match result.try_recv() {
                // If the archive is incomplete, the tool fails too; report the archive's fault.
                Ok(Err(failure)) => Err(failure),
                Ok(Ok(named)) => {
                    // The tool's own error about a foreign image says less.
                    named.as_ref().map_or(Ok(()), check_architecture)?;
                    check("ctr", ended)?;
                    let ArchiveImages { images, mut by_digest, layout, .. } = named.ok_or_else(unread)?;
                    // The import gives these names itself.
                    by_digest.retain(|(name, _)| !images.contains(name));
                    keep_records(records, layout).await;
                    let digests = name_by_digest(endpoint, by_digest).await;
                    Ok(ArchiveNames { images, digests })
                }
                // The tool could not be started or did not finish.
                Err(_) => check("ctr", ended).and(Err(unread())),
            }
        }
        Tool::Skopeo => {
            let here = path.clone();
            let named = rt::slow(move || pour(&here, &mut io::sink())).await?.ok_or_else(unread)?;
            check_architecture(&named)?;
            let kind = if named.is_docker { "docker-archive" } else { "oci-archive" };
            for image in &named.images {
                let mut command = skopeo();
                let from = format!("{kind}:/dev/stdin:{image}");
                command.args(["copy", "--quiet", &from, &format!("containers-storage:{image}")]);
                let here = path.clone();
                // Some versions of skopeo read compressed oci-archives only.
                let unpacks = named.is_docker;
                let file = rt::slow(move || if unpacks { unpacked(&here) } else { open(&here).map_err(unusable) });
                let file = file.await?;
                check("skopeo", program::run_on(command, file, ARCHIVE_IMPORT_TIMEOUT).await)?;
            }
            keep_records(records, named.layout).await;
            // This store finds an image by the digest of its manifest anyway.
            Ok(ArchiveNames { images: named.images, digests: Vec::new() })
        }
    }
}

/// Gives images names with their digests, as a pull from a registry does, and returns these names. The layout has no
/// blobs, since the runtime has them.
async fn name_by_digest(endpoint: &Path, images: Vec<(String, Descriptor)>) -> Vec<String> {
    if images.is_empty() {
        return Vec::new();
    }
    let index = layout_index(images.iter().map(|(name, top)| (name.as_str(), top)));
    let layout = small_tar(&[("oci-layout", OCI_LAYOUT), ("index.json", &index)]).unwrap_or_default();
    let ended = program::run(ctr(endpoint, &["images", "import", "-"]), layout, ARCHIVE_IMPORT_TIMEOUT).await;
    match check("ctr", ended) {
        Ok(()) => images.into_iter().map(|(name, _)| name).collect(),
        Err(failure) => {
            log!(warn, "failed to name imported images by digest", error = failure);
            Vec::new()
        }
    }
}

/// Keeps what the policy has to judge. Without it the registry is asked.
async fn keep_records(directory: Option<PathBuf>, layout: LayoutDocuments) {
    let Some(directory) = directory else { return };
    let keep = move || {
        layout.records().try_for_each(|(id, record)| {
            let path = directory.join(layout_record_name(id.hex()));
            replace_within(&path, record.as_bytes(), MAX_LAYOUT_RECORD_BYTES)
        })
    };
    if let Err(error) = rt::blocking(keep).await {
        log!(warn, "failed to keep manifests and signatures of image archive", error = error);
    }
}

/// Refuses an archive all of whose images are for other machines.
fn check_architecture(archive: &ArchiveImages) -> Result<(), Failure> {
    let all = &archive.architectures;
    if all.is_empty() || all.iter().any(|one| architecture::may_run(one)) {
        return Ok(());
    }
    let all = all.join(" and ");
    Err(Failure::Refused(format!("image is {all}, this node is {ARCHITECTURE}: {BUILD_FOR_THIS_MACHINE}")))
}

/// Makes a directory in skopeo's format `dir:`, of links to the blobs of the layout $1, and copies the image with the index
/// or manifest $2 into the store as $3.
///
/// `oci:` refuses manifests of Docker's types. Parts of blobs have an extension. Which blobs are manifests is in the index.
const COPY_FROM_LAYOUT: &str = r#"
cd "$1"
rm -rf skopeo
mkdir skopeo
for blob in blobs/sha256/*; do
    name=${blob##*/}
    case $name in *.*) continue ;; esac
    ln -s "../$blob" "skopeo/$name"
    ln -s "../$blob" "skopeo/$name.manifest.json"
done
ln -s "../blobs/sha256/$2" skopeo/manifest.json
umask 022
exec skopeo copy --quiet dir:skopeo "containers-storage:$3"
"#;

fn copy_from_layout(layout: &Path, top: &Digest, name: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", COPY_FROM_LAYOUT, "sh"]).arg(layout).args([top.hex(), name]);
    command
}

/// skopeo writes the directories of layers itself, which users of containers must be able to enter: not with the umask of
/// the service.
fn skopeo() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 022; exec \"$@\"", "sh", "skopeo"]);
    command
}

pub(super) fn ctr(endpoint: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("ctr");
    command.arg("--address").arg(endpoint).args(["--namespace", "k8s.io"]).args(arguments);
    command
}

/// Imports the image `top` of the OCI layout in `directory` under its names. `tar` writes the layout as a tar, without the
/// blobs that the runtime has.
pub(crate) async fn import_layout(
    tool: &Tool,
    directory: &Path,
    top: &Digest,
    names: &[String],
    tar: impl FnOnce(ChildStdin) + Send + 'static,
) -> Result<(), Failure> {
    match tool {
        Tool::Ctr(endpoint) => {
            let ended = program::run_fed(ctr(endpoint, &["images", "import", "-"]), tar, ARCHIVE_IMPORT_TIMEOUT).await;
            check("ctr", ended)
        }
        Tool::Skopeo => {
            // The names of one image; those with a digest come with it.
            let Some(name) = names.first() else { return Ok(()) };
            let command = copy_from_layout(directory, top, name);
            check("skopeo", program::run(command, Vec::new(), ARCHIVE_IMPORT_TIMEOUT).await)
        }
    }
}

/// The tool stopped reading without an error.
pub(super) fn unread() -> Failure {
    Failure::Failed("the import tool has not read all of it".to_owned())
}

pub(super) fn check(tool: &str, ended: Result<program::ProgramOutput, program::ProgramError>) -> Result<(), Failure> {
    let why = match ended {
        Ok(ended) if ended.status.success() => return Ok(()),
        Ok(ended) => {
            let stderr_text = String::from_utf8_lossy(&ended.stderr);
            let line = stderr_text.lines().rev().find(|line| !line.trim().is_empty());
            line.map_or_else(|| ended.status.to_string(), |line| line.trim().to_owned())
        }
        Err(program::ProgramError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {
            "it is not installed, and nothing else can import for this runtime".to_owned()
        }
        Err(error) => ErrorChain(&error).to_string(),
    };
    Err(Failure::Failed(format!("{tool}: {why}")))
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    // Non-blocking: it may be a pipe without a writer.
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

/// The archive uncompressed: the file itself, or an unnamed temporary copy in the same directory. Blocks.
pub(super) fn unpacked(path: &Path) -> Result<File, Failure> {
    let mut file = open(path).map_err(unusable)?;
    if Packing::of(&head(&mut file)?) == Some(Packing::Plain) {
        return Ok(file);
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    let copy = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_TMPFILE).open(directory);
    let mut copy = copy.map_err(|error| Failure::Failed(format!("it cannot be unpacked: {error}")))?;
    pour(path, &mut copy)?.ok_or_else(|| Failure::Failed("there is no room to unpack it beside itself".to_owned()))?;
    copy.rewind().map_err(unusable)?;
    Ok(copy)
}

/// The first bytes of a file; rewinds it.
fn head(file: &mut File) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::new();
    let most = u64::try_from(ARCHIVE_HEAD_BYTES).unwrap_or_default();
    { &*file }.take(most).read_to_end(&mut head).and_then(|_| file.rewind()).map_err(unusable)?;
    Ok(head)
}

pub(super) fn unusable(error: io::Error) -> Failure {
    Failure::Failed(format!("cannot be read: {error}"))
}

/// Decompresses an archive into `sink` and returns its contents. `None`: the sink did not take everything. Blocks.
pub(super) fn pour(path: &Path, sink: &mut dyn Write) -> Result<Option<ArchiveImages>, Failure> {
    let mut file = open(path).map_err(unusable)?;
    let Some(packing) = Packing::of(&head(&mut file)?) else {
        return Err(Failure::Refused("it is not a tar archive, plain or compressed with gzip or zstd".to_owned()));
    };
    let program = match packing {
        Packing::Plain => return pour_tar(&mut file, sink),
        Packing::By(program) => program,
    };
    let mut unpack = Command::new(program);
    unpack.arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = unpack
        .spawn()
        .map_err(|error| Failure::Failed(format!("it is packed by {program}, and {program} cannot be run: {error}")))?;
    // Dropped after reading, so that the program ends even if output is left.
    let poured = child.stdout.take().map_or(Ok(None), |mut output| pour_tar(&mut output, sink));
    match child.wait() {
        Ok(status) if !status.success() && !matches!(poured, Ok(None)) => {
            Err(Failure::Refused(format!("it is cut short or damaged ({program}: {status})")))
        }
        _ => poured,
    }
}

pub(super) fn pour_tar(source: &mut dyn Read, sink: &mut dyn Write) -> Result<Option<ArchiveImages>, Failure> {
    let bad = |error: BadArchive| Failure::Refused(error.to_string());
    let mut contents = Contents::default();
    let mut is_sent = false;
    let mut part = Vec::new();
    loop {
        part.clear();
        // Parts of whole blocks, so that the end marker is in one of them.
        { &mut *source }.take(64 << 10).read_to_end(&mut part).map_err(unusable)?;
        let is_last = part.is_empty();
        contents.push(&part).map_err(bad)?;
        if !is_sent {
            is_sent = (is_last || contents.has_ended()) && contents.end_signed(&mut part).map_err(bad)?;
            // After the end marker the tool may stop reading.
            if sink.write_all(&part).is_err() && !contents.has_ended() {
                // The tool has exited and reports the error itself.
                return Ok(None);
            }
        }
        if is_last {
            return contents.end().map(Some).map_err(bad);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn skopeo_gets_manifests_and_blobs_by_their_names() {
        let folder = folder("skopeo");
        // Prints its arguments, and the files of the directory with their contents.
        let script = "#!/bin/sh\necho $@\ncd skopeo && for file in *; do echo $file $(cat $file); done\n";
        fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
        fs::write(folder.join("program"), script).unwrap();
        run("mkdir bin; mv program bin/skopeo; chmod +x bin/skopeo", &folder);
        let [top, layer] = ["top", "layer"].map(|content| (Digest::of(content.as_bytes()), content));
        let mut files = vec!["manifest.json top".to_owned()];
        for (digest, content) in [&top, &layer] {
            fs::write(folder.join("blobs/sha256").join(digest.hex()), content).unwrap();
            files.push(format!("{} {content}", digest.hex()));
            files.push(format!("{}.manifest.json {content}", digest.hex()));
        }
        fs::write(folder.join("blobs/sha256/0123.part"), "").unwrap();
        files.sort();
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        // Again after an import that was interrupted.
        let printed =
            [(), ()].map(|()| copy_from_layout(&folder, &top.0, "r.io/a:1").env("PATH", &path).output().unwrap());
        fs::remove_dir_all(&folder).unwrap();
        for output in printed {
            let text = String::from_utf8(output.stdout).unwrap();
            let (arguments, directory) = text.split_once('\n').unwrap();
            assert_eq!(arguments, "copy --quiet dir:skopeo containers-storage:r.io/a:1");
            let mut directory: Vec<&str> = directory.lines().collect();
            directory.sort_unstable();
            assert_eq!(directory, files);
        }
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coracle-import-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn run(line: &str, folder: &Path) {
        let done = Command::new("sh").args(["-ec", line]).current_dir(folder).status().unwrap();
        assert!(done.success(), "{line}");
    }

    #[test]
    fn archive_for_other_machines_is_refused() {
        let of = |architectures: &[&str]| {
            let architectures = architectures.iter().map(|&one| one.to_owned()).collect();
            check_architecture(&ArchiveImages {
                images: Vec::new(),
                by_digest: Vec::new(),
                has_digests: false,
                architectures,
                is_docker: true,
                layout: LayoutDocuments::default(),
            })
        };
        assert_eq!(of(&[]), Ok(()));
        assert_eq!(of(&["s390x", ARCHITECTURE]), Ok(()));
        let line = format!("image is s390x, this node is {ARCHITECTURE}: {BUILD_FOR_THIS_MACHINE}");
        assert_eq!(of(&["s390x"]), Err(Failure::Refused(line)));
    }

    #[test]
    fn compressed_archive_is_unpacked_and_plain_one_used_in_place() {
        let folder = folder("copy");
        fs::write(folder.join("manifest.json"), r#"[{"RepoTags":["a:1"]}]"#).unwrap();
        run("tar -cf a.tar manifest.json; gzip -k a.tar; rm manifest.json", &folder);
        let plain = fs::read(folder.join("a.tar")).unwrap();
        for name in ["a.tar", "a.tar.gz"] {
            let mut read = Vec::new();
            unpacked(&folder.join(name)).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == plain, "{name}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn archive_is_decompressed_while_piped_and_truncated_one_refused() {
        let folder = folder("pour");
        fs::write(folder.join("manifest.json"), r#"[{"RepoTags":["a:1"]}]"#).unwrap();
        fs::write(folder.join("layer"), vec![7; 300_000]).unwrap();
        run("tar -cf a.tar layer manifest.json", &folder);
        let mut names = vec!["a.tar"];
        // A board may have only one of the programs.
        for (program, line, name) in [("gzip", "gzip -k a.tar", "a.tar.gz"), ("zstd", "zstd -q a.tar", "a.tar.zst")] {
            if Command::new(program).arg("--version").output().is_ok() {
                run(line, &folder);
                names.push(name);
            }
        }
        let plain = fs::read(folder.join("a.tar")).unwrap();
        let pour_whole = |name: &&str| {
            let mut sink = Vec::new();
            (pour(&folder.join(name), &mut sink), sink == plain)
        };
        let poured: Vec<_> = names.iter().map(pour_whole).collect();
        let pour_cut = |name: &&str| {
            let bytes = fs::read(folder.join(name)).unwrap();
            fs::write(folder.join("cut"), &bytes[..bytes.len() * 2 / 3]).unwrap();
            pour(&folder.join("cut"), &mut io::sink())
        };
        let cut: Vec<_> = names.iter().map(pour_cut).collect();
        fs::write(folder.join("text"), "hello").unwrap();
        let others = [pour(&folder.join("text"), &mut io::sink()), pour(&folder, &mut io::sink())];
        fs::remove_dir_all(&folder).unwrap();
        for (poured, is_same) in poured {
            let images = vec!["a:1".to_owned()];
            let (by_digest, architectures, layout) = (Vec::new(), Vec::new(), LayoutDocuments::default());
            let expected =
                ArchiveImages { images, by_digest, has_digests: false, architectures, is_docker: true, layout };
            assert_eq!(poured, Ok(Some(expected)));
            assert!(is_same);
        }
        assert_eq!(cut[0], Err(Failure::Refused("it is cut short".to_owned())));
        for cut in &cut[1..] {
            assert!(
                matches!(cut, Err(Failure::Refused(why)) if why.starts_with("it is cut short or damaged (")),
                "{cut:?}"
            );
        }
        let expected = "it is not a tar archive, plain or compressed with gzip or zstd";
        assert_eq!(others[0], Err(Failure::Refused(expected.to_owned())));
        assert!(matches!(&others[1], Err(Failure::Failed(_))), "{others:?}");
    }

    #[test]
    fn runtime_gets_image_of_signed_archive_without_its_signatures() {
        let manifest = r#"{"config":{},"layers":[]}"#;
        let digest = Digest::of(manifest.as_bytes());
        let payload = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"r.io/app:1"}},"image":{{"docker-manifest-digest":"{digest}"}}}}}}"#
        );
        let index = format!(
            r#"{{"manifests":[{{"digest":"{digest}","size":25,"mediaType":"m"}},
            {{"digest":"{0}","size":1,"annotations":{{"org.opencontainers.image.ref.name":"r.io/app:sha256-{1}.sig"}}}}]}}"#,
            Digest::of(b"x"),
            digest.hex()
        );
        let tar = small_tar(&[("index.json", &index), ("./blobs/sha256/a", manifest), ("b", &payload)]).unwrap();
        let padded = [tar.clone(), vec![0; 300_000]].concat();
        let unended = tar[..tar.len() - 1024].to_vec();
        let descriptor = Descriptor { digest, size: 25, media_type: "m".to_owned() };
        let images = layout_index([("r.io/app:1", &descriptor)]);
        let expected = [unended.clone(), small_tar(&[("index.json", &images)]).unwrap()].concat();
        for archive in [tar, padded, unended] {
            let mut sink = Vec::new();
            let poured = pour_tar(&mut &archive[..], &mut sink).unwrap().unwrap();
            assert_eq!(poured.images, ["r.io/app:1"]);
            assert!(sink == expected, "{}", archive.len());
        }
    }

    #[test]
    fn closed_sink_is_not_a_fault_of_the_archive() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let folder = folder("closed");
        fs::write(folder.join("x"), vec![7; 300_000]).unwrap();
        run("tar -cf a.tar x; gzip -k a.tar", &folder);
        let poured = ["a.tar", "a.tar.gz"].map(|name| pour(&folder.join(name), &mut Closed));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(poured, [Ok(None), Ok(None)]);
    }

    #[test]
    fn each_runtime_has_its_tool() {
        let of = |name| Tool::of(name, Path::new("/run/x.sock"));
        assert!(matches!(of("containerd"), Some(Tool::Ctr(path)) if path == Path::new("/run/x.sock")));
        assert!(matches!(of("cri-o"), Some(Tool::Skopeo)));
        assert!(of("other").is_none());
    }
}
