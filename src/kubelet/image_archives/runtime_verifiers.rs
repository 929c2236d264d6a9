//! containerd's verifiers of images: programs of the owner that judge an image before the runtime has it (its plugin
//! `io.containerd.image-verifier.v1.bindir`). containerd asks them for its own pulls, the agent for what it imports.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::archive_list::Failure;
use super::delta::DeltaFile;
use super::import::{Tool, open, pour, unread, unusable};
use super::manifest::Descriptor;
use crate::platform::host::program;
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

/// The plugin's directory, `bin_dir`.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeVerifiers(pub(crate) PathBuf);

/// The plugin's `max_verifiers` and `per_verifier_timeout`.
const MAX_VERIFIERS: usize = 10;
const VERIFIER_TIMEOUT: Duration = Duration::from_secs(10);
const DESCRIPTOR: &str = "application/vnd.oci.descriptor.v1+json";

impl RuntimeVerifiers {
    /// The programs in the order of their names. A directory that does not exist has none.
    pub(crate) async fn programs(&self) -> Result<Vec<PathBuf>, Failure> {
        let directory = self.0.clone();
        let list = move || {
            let mut programs = Vec::new();
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                if !entry.file_type()?.is_dir() {
                    programs.push(entry.path());
                }
            }
            programs.sort_once();
            programs.truncate(MAX_VERIFIERS);
            Ok::<_, io::Error>(programs)
        };
        match rt::blocking(list).await {
            Err(error) if ErrorKind::NotFound == error.kind() => Ok(Vec::new()),
            listed => listed
                .map_err(|error| Failure::Failed(format!("the runtime's verifiers in {}: {error}", self.0.display()))),
        }
    }

    /// Asks every program about the image with this name and manifest or index. Each has to accept it.
    pub(crate) async fn judge(&self, name: &str, top: &Descriptor) -> Result<(), Failure> {
        for verifier in self.programs().await? {
            let digest = top.digest.to_string();
            let mut command = Command::new(&verifier);
            command.args(["-name", name, "-digest", &digest, "-stdin-media-type", DESCRIPTOR]);
            let descriptor = serde_json::json!({"mediaType": top.media_type, "digest": digest, "size": top.size});
            let ended = program::run(command, descriptor.to_string().into_bytes(), VERIFIER_TIMEOUT).await;
            let shown = verifier.display();
            let ended =
                ended.map_err(|error| Failure::Failed(format!("the verifier {shown}: {}", ErrorChain(&error))))?;
            if !ended.status.success() {
                let reason = String::from_utf8_lossy(&ended.stdout);
                let reason = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason given");
                return Err(Failure::Refused(format!(
                    "the runtime's verifier {shown} refuses {name} ({digest}): {reason}"
                )));
            }
        }
        Ok(())
    }
}

impl RuntimeVerifiers {
    /// Asks about the images of an archive, by the digests that they have in a registry.
    pub(super) async fn judge_archive(&self, tool: &Tool, path: PathBuf) -> Result<(), Failure> {
        if !matches!(tool, Tool::Ctr(_)) || self.programs().await?.is_empty() {
            return Ok(());
        }
        let without_digest = |what: &str| {
            Err(Failure::Refused(format!(
                "the runtime's verifiers in {} judge an image by its digest in a registry, and {what} has none",
                self.0.display()
            )))
        };
        let here = path.clone();
        if rt::slow(move || open(&here).map_err(unusable).and_then(DeltaFile::open)).await?.is_some() {
            return without_digest("a delta");
        }
        let named = rt::slow(move || pour(&path, &mut io::sink())).await?.ok_or_else(unread)?;
        if !named.has_digests {
            return without_digest("a docker-archive");
        }
        for (name, top) in &named.by_digest {
            self.judge(name, top).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::manifest::{Digest, layout_index};
    use super::super::tar_header::small_tar;
    use super::*;
    use crate::platform::rt::{TestFolder, block_on};

    fn write_verifier(folder: &TestFolder, name: &str, script: &str) {
        let path = folder.0.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn judged(folder: &TestFolder) -> Result<(), String> {
        let top = Descriptor { digest: Digest::of(b"index"), size: 5, media_type: "m".to_owned() };
        let verifiers = RuntimeVerifiers(folder.0.clone());
        block_on(verifiers.judge("r.io/a:1", &top)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_verifier_is_asked_as_containerd_asks_it() {
        let folder = TestFolder::new("verifiers-asked");
        let asked = folder.0.join("asked");
        fs::create_dir(&asked).unwrap();
        for name in ["b", "a"] {
            write_verifier(&folder, name, &format!("echo {name} \"$@\" >>{0}/list; cat >>{0}/list", asked.display()));
        }
        assert_eq!(judged(&folder), Ok(()));
        let digest = Digest::of(b"index");
        let line = |name| {
            format!(
                "{name} -name r.io/a:1 -digest {digest} -stdin-media-type {DESCRIPTOR}\n\
                 {{\"digest\":\"{digest}\",\"mediaType\":\"m\",\"size\":5}}"
            )
        };
        assert_eq!(fs::read_to_string(asked.join("list")).unwrap(), line("a") + &line("b"));
    }

    #[test]
    fn one_verifier_that_refuses_or_cannot_run_is_enough() {
        let folder = TestFolder::new("verifiers-refuse");
        write_verifier(&folder, "a", "exit 0");
        write_verifier(&folder, "b", "echo; echo 'not signed by us'; exit 1");
        let text = judged(&folder).unwrap_err();
        assert!(text.ends_with(&format!("/b refuses r.io/a:1 ({}): not signed by us", Digest::of(b"index"))), "{text}");
        fs::write(folder.0.join("b"), "not a program").unwrap();
        fs::set_permissions(folder.0.join("b"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(judged(&folder).unwrap_err().contains("/b: "));
    }

    #[test]
    fn archive_is_judged_if_each_image_has_a_digest() {
        let folder = TestFolder::new("verifiers-archive");
        let bin = folder.0.join("bin");
        fs::create_dir(&bin).unwrap();
        write_verifier(&folder, "bin/a", &format!("cat >/dev/null; echo \"$2\" >>{}/asked", folder.0.display()));
        let top = Descriptor { digest: Digest::of(b"index"), size: 5, media_type: "m".to_owned() };
        let by_digest = format!("r.io/a@{}", top.digest);
        let two_tags = layout_index([("r.io/a:1", &top), ("r.io/a:2", &top)]);
        let digest_only = layout_index([(by_digest.as_str(), &top)]);
        let tool = Tool::Ctr("/nowhere".into());
        let judge = |file: (&str, &str)| {
            let path = folder.0.join("archive");
            fs::write(&path, small_tar(&[file]).unwrap()).unwrap();
            block_on(RuntimeVerifiers(bin.clone()).judge_archive(&tool, path)).map_err(|failure| failure.to_string())
        };
        assert_eq!(judge(("index.json", &two_tags)), Ok(()));
        assert_eq!(judge(("index.json", &digest_only)), Ok(()));
        let refused = judge(("manifest.json", r#"[{"RepoTags":["r.io/a:1"]}]"#)).unwrap_err();
        assert!(refused.contains("a docker-archive has none"), "{refused}");
        assert_eq!(fs::read_to_string(folder.0.join("asked")).unwrap(), format!("{by_digest}\n{by_digest}\n"));
    }

    #[test]
    fn missing_directory_accepts_every_image() {
        let folder = TestFolder::new("verifiers-missing");
        fs::remove_dir(&folder.0).unwrap();
        assert_eq!(judged(&folder), Ok(()));
    }
}
