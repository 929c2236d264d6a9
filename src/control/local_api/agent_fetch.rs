//! Fetches and verifies the program or the configuration of an update.

use std::path::PathBuf;
use std::rc::Rc;

use crate::kubelet::agent_update::{Wanted, Wish};
use crate::kubelet::image_archives::artifact::{self, ArtifactFile};
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::kubelet::image_transfer::{FileFetch, LinkBudget, fetch_small};
use crate::kubelet::images::{ARTIFACT_SCHEME, Artifacts};
use crate::platform::host::file;
use crate::platform::net::{Dialer, Url};
use crate::platform::rt;
use crate::protocol::ed25519::{EXPECTED_PUBLIC_KEY, PublicKey, plain_signature};
use crate::protocol::sha256::sha256;
use crate::types::architecture::ARCHITECTURE;

pub(crate) struct ProgramFetch {
    pub(crate) dialer: Dialer,
    pub(crate) budget: Rc<LinkBudget>,
    pub(crate) artifacts: Artifacts,
    /// Those with configurations. It has a folder of its own: a fetch removes the parts of others in its folder.
    pub(crate) config_artifacts: Artifacts,
    /// File with the key that must have signed every program.
    pub(crate) key: PathBuf,
    pub(crate) root_dir: PathBuf,
}

/// Why an upgrade did not begin, as one line.
pub(super) enum Obstacle {
    /// It is tried again.
    Passing(String),
    /// The file is not accepted, whenever it is fetched.
    Final(String),
    /// The program runs already.
    Present(String),
}

impl Obstacle {
    pub(super) fn line(self) -> String {
        match self {
            Self::Passing(line) | Self::Final(line) | Self::Present(line) => line,
        }
    }
}

const EXPECTED_SIGNATURE: &str = "signature: expected 64 bytes, raw or in base64";
const MAX_REMOTE_KEY_BYTES: u64 = 64 << 10;
const MAX_REMOTE_CONFIG_BYTES: u64 = 1 << 20;
const MAX_REMOTE_PROGRAM_BYTES: u64 = 64 << 20;

/// What proves that a file is the wanted one.
enum Proof {
    Digest(String),
    Signature(Box<PublicKey>, Vec<u8>),
}

impl Proof {
    fn holds(&self, program: &[u8]) -> bool {
        match self {
            Self::Digest(digest) => sha256(program) == *digest,
            Self::Signature(key, signature) => key.has_signed(program, signature),
        }
    }

    /// Names the part on the disk, so that none of another file is continued.
    fn part(&self) -> String {
        match self {
            Self::Digest(digest) => digest.clone(),
            Self::Signature(_, signature) => sha256(signature),
        }
    }

    fn failure(&self) -> String {
        match self {
            Self::Digest(digest) => format!("its sha256 is not {digest}"),
            Self::Signature(..) => "it is not signed by this node's key".to_owned(),
        }
    }
}

impl ProgramFetch {
    /// The verified file: the program, or the configuration at the URL of the wish.
    pub(super) async fn file(&self, wish: &Wish, wanted: Wanted) -> Result<Vec<u8>, Obstacle> {
        match wish.url.strip_prefix(ARTIFACT_SCHEME) {
            Some(artifact) => self.fetch_from_registry(artifact, wish, wanted).await,
            None => self.fetch_from_server(wish, wanted).await,
        }
    }

    /// The layer for this machine, and the layer with its signature.
    async fn fetch_from_registry(&self, artifact: &str, wish: &Wish, wanted: Wanted) -> Result<Vec<u8>, Obstacle> {
        let is_proven = wish.digest.is_some() || wish.is_signed && artifact.contains("@sha256:");
        let key = if is_proven { None } else { Some(self.key().await.map_err(Obstacle::Passing)?) };
        let choose = match (wanted, is_proven) {
            (Wanted::Config, _) => configuration_and_signature,
            (Wanted::Program, true) => program_alone,
            (Wanted::Program, false) => program_and_signature,
        };
        let artifacts = match wanted {
            Wanted::Config => &self.config_artifacts,
            Wanted::Program => &self.artifacts,
        };
        let files = artifacts.files(artifact, choose).await.map_err(Obstacle::Passing)?;
        let mut files = files.into_iter();
        let program = files.next().ok_or_else(|| Obstacle::Passing("no layer was fetched".to_owned()))?;
        let proof = match (&wish.digest, key, files.next()) {
            (Some(digest), ..) => Proof::Digest(digest.clone()),
            (None, Some(key), Some(file)) => {
                let signature = plain_signature(&file.content);
                let signature = signature.ok_or_else(|| Obstacle::Passing(EXPECTED_SIGNATURE.to_owned()))?;
                Proof::Signature(Box::new(key), signature)
            }
            // The fetch has checked it against the digest in the signed document.
            (None, ..) => Proof::Digest(program.blob.digest.hex().to_owned()),
        };
        match proof.holds(&program.content) {
            true => Ok(program.content),
            false => Err(Obstacle::Final(proof.failure())),
        }
    }

    async fn fetch_from_server(&self, wish: &Wish, wanted: Wanted) -> Result<Vec<u8>, Obstacle> {
        let at =
            Url::parse(&wish.url).ok_or_else(|| Obstacle::Final("expected an http, https or oci URL".to_owned()))?;
        let proof = match &wish.digest {
            Some(digest) => Proof::Digest(digest.clone()),
            None => self.signature(&at).await.map_err(Obstacle::Passing)?,
        };
        let fetch = self.file_fetch(wanted, &proof);
        fetch.forget_others().await;
        loop {
            let is_continued = fetch.has_begun().await;
            let program = fetch.run(&at).await.map_err(Obstacle::Passing)?;
            let is_proven = proof.holds(&program);
            // A power cut may have damaged the part.
            if !is_proven && is_continued && fetch.begin_again().await {
                continue;
            }
            fetch.forget().await;
            return if is_proven { Ok(program) } else { Err(Obstacle::Final(proof.failure())) };
        }
    }

    /// A configuration has another folder than a program, since a fetch removes the parts of others in its folder.
    fn file_fetch(&self, wanted: Wanted, proof: &Proof) -> FileFetch {
        let folder = match wanted {
            Wanted::Config => "coracle/agent/fetch-config",
            Wanted::Program => "coracle/agent/fetch",
        };
        let part = self.root_dir.join(folder).join(proof.part());
        let (dialer, budget) = (self.dialer.clone(), Rc::clone(&self.budget));
        FileFetch { dialer, budget, part, limit: limit(wanted) }
    }

    async fn key(&self) -> Result<PublicKey, String> {
        let (path, shown) = (self.key.clone(), self.key.display().to_string());
        let key = rt::blocking(move || file::read_all(&path, MAX_REMOTE_KEY_BYTES)).await;
        let key = key.map_err(|error| format!("{shown}: {error}"))?;
        PublicKey::parse(&key).ok_or_else(|| format!("{shown}: {EXPECTED_PUBLIC_KEY}"))
    }

    /// The key of this node, and the signature beside the program: one that is missing costs no program.
    async fn signature(&self, at: &Url) -> Result<Proof, String> {
        let key = self.key().await?;
        let mut signature_url = at.clone();
        signature_url.target = match at.target.split_once('?') {
            Some((path, query)) => format!("{path}.sig?{query}"),
            None => format!("{}.sig", at.target),
        };
        let signature_file = fetch_small(&self.dialer, &signature_url, MAX_REMOTE_KEY_BYTES).await;
        let signature_file = signature_file.map_err(|line| format!("signature: {line}"))?;
        let signature = plain_signature(&signature_file).ok_or(EXPECTED_SIGNATURE)?;
        Ok(Proof::Signature(Box::new(key), signature))
    }
}

fn limit(wanted: Wanted) -> u64 {
    match wanted {
        Wanted::Config => MAX_REMOTE_CONFIG_BYTES,
        Wanted::Program => MAX_REMOTE_PROGRAM_BYTES,
    }
}

fn program_alone(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    let program = artifact::program(files, ARCHITECTURE)?;
    Ok(vec![within(program, limit(Wanted::Program))?])
}

fn program_and_signature(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    with_signature(files, artifact::program(files, ARCHITECTURE)?, Wanted::Program)
}

fn configuration_and_signature(files: &[ArtifactFile]) -> Result<Vec<Descriptor>, String> {
    with_signature(files, artifact::content(files)?, Wanted::Config)
}

fn with_signature(files: &[ArtifactFile], file: &ArtifactFile, wanted: Wanted) -> Result<Vec<Descriptor>, String> {
    let signature = artifact::signature(files, file)?;
    Ok(vec![within(file, limit(wanted))?, within(signature, MAX_REMOTE_KEY_BYTES)?])
}

fn within(file: &ArtifactFile, limit: u64) -> Result<Descriptor, String> {
    match file.blob.size > limit {
        true => Err(format!("layer {}: larger than {limit} bytes", file.title)),
        false => Ok(file.blob.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kubelet::image_credentials::NodeCredentials;
    use crate::kubelet::image_transfer::ArtifactFetch;
    use crate::platform::config::Config;
    use crate::platform::rt::TestFolder;

    #[test]
    fn fetch_of_configuration_keeps_part_of_program() {
        let folder = TestFolder::new("agent-fetch");
        let config = Config { root_dir: folder.0.clone(), ..Config::default() };
        let budget = Rc::new(LinkBudget::open(&config, None));
        let artifacts = || Artifacts {
            fetch: ArtifactFetch::new(folder.0.clone(), folder.0.clone(), Default::default(), Rc::clone(&budget)),
            credentials: NodeCredentials::of(&config),
        };
        let fetch = ProgramFetch {
            dialer: Dialer::new(),
            budget: Rc::clone(&budget),
            artifacts: artifacts(),
            config_artifacts: artifacts(),
            key: folder.0.join("key"),
            root_dir: folder.0.clone(),
        };
        let [program, other, config] = [(Wanted::Program, "a"), (Wanted::Program, "b"), (Wanted::Config, "c")]
            .map(|(wanted, digest)| fetch.file_fetch(wanted, &Proof::Digest(digest.to_owned())));
        for fetch in [&program, &other, &config] {
            fs::create_dir_all(fetch.part.parent().unwrap()).unwrap();
            fs::write(&fetch.part, "half").unwrap();
        }
        rt::block_on(async {
            config.forget_others().await;
            assert!(program.has_begun().await && other.has_begun().await);
            program.forget_others().await;
            assert!(program.has_begun().await && config.has_begun().await && !other.has_begun().await);
        });
    }
}
