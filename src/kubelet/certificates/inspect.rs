//! Reads the node's credentials from disk and repairs interrupted updates.

use std::fs;
use std::path::{Path, PathBuf};

use super::kubeconfig;
use super::pair::Pair;
use super::pkcs10::Names;
use super::reenrolment_key::ReenrolmentPaths;
use super::rotation::{HeldCertificate, KnownTime, RenewalState, Seconds};
use super::store::{Store, StoreError};
use crate::platform::apiserver::{Kubeconfig, Pem};
use crate::platform::host::directories::set_aside;
use crate::platform::host::{clock, file};
use crate::protocol::pem;
use crate::protocol::x509::Certificate;
use crate::types::api::Time;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortOnce;

/// The paths of the node's credentials.
#[derive(Clone, Debug)]
pub(crate) struct CredentialPaths {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    pub(crate) store: Store,
    /// `None`: an expired certificate is renewed by hand, or with bootstrap credentials.
    pub(crate) reenrolment: Option<ReenrolmentPaths>,
}

#[derive(Debug)]
pub(super) struct StoredCredentials {
    pub(super) pair: StoredPair,
    pub(super) has_bootstrap: bool,
    pub(super) has_reenrolment: bool,
    /// Why credentials cannot be used; one line each.
    pub(super) faults: Vec<String>,
    /// The latest time that is certainly past.
    pub(super) floor: Seconds,
    /// Identifies the credentials that a connection is built from. When it changes, the client reconnects.
    pub(super) mark: CredentialsMark,
    /// The files to watch.
    pub(super) files: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) enum StoredPair {
    None,
    Token,
    Certificate { leaf: Certificate, is_embedded: bool },
}

pub(super) type CredentialsMark = (Option<Kubeconfig>, Option<Vec<u8>>, Option<Certificate>);

/// Size limit of kubeconfigs and CA files.
pub(super) const MAX_INSPECTED_FILE_BYTES: u64 = 1 << 20;

impl CredentialPaths {
    /// Reads all credentials. Points the kubeconfig to the stored pair if that pair is valid, the cluster is known,
    /// and the kubeconfig has no better credentials. Blocks.
    pub(super) fn inspect(&self, names: &Names, clock: Seconds) -> StoredCredentials {
        let mut faults = Vec::new();
        let stored = self.store.current().unwrap_or_else(|error| {
            faults.push(ErrorChain(&error).to_string());
            None
        });
        let bootstrap = self.bootstrap_kubeconfig.as_deref().and_then(|path| read_kubeconfig(path, &mut faults));
        let mut seen = self.kubeconfig(&mut faults);
        if let Some(stored) = &stored {
            if let Some(cluster) = seen.kubeconfig.as_ref().or(bootstrap.as_ref()) {
                let leaves = [Some(&stored.leaf), seen.pair.as_ref().map(|pair| &pair.leaf)];
                let present = KnownTime { clock, floor: floor(leaves, authority_of(cluster).as_deref()) };
                if seen.is_worse_than(stored, names, present) {
                    faults.clear();
                    faults.extend(self.write_kubeconfig(cluster).err().map(|error| ErrorChain(&error).to_string()));
                    log!(info, "kubeconfig now points to the stored certificate", file = self.kubeconfig.display());
                    seen = self.kubeconfig(&mut faults);
                }
            }
        }
        let authority = seen.kubeconfig.as_ref().and_then(authority_of);
        let files = self.files(seen.kubeconfig.as_ref());
        let uses_token = seen.uses_token();
        let leaf = seen.pair.map(|pair| pair.leaf);
        let is_used = leaf.is_some() && self.remove_used_bootstrap();
        StoredCredentials {
            pair: match &leaf {
                Some(leaf) => StoredPair::Certificate { leaf: leaf.clone(), is_embedded: seen.is_embedded },
                None if uses_token => StoredPair::Token,
                None => StoredPair::None,
            },
            has_bootstrap: bootstrap.is_some() && !is_used,
            has_reenrolment: self.reenrolment.as_ref().is_some_and(ReenrolmentPaths::are_complete),
            faults,
            floor: floor([leaf.as_ref(), stored.as_ref().map(|pair| &pair.leaf)], authority.as_deref()),
            mark: (seen.kubeconfig, authority, leaf),
            files,
        }
    }

    /// Stores the pair as the current one and points the kubeconfig to it. Blocks.
    pub(super) fn store(&self, pair: &Pair, from_bootstrap: bool, now: Seconds) -> Result<(), StoreError> {
        self.store.put(pair, Time::from_unix_nanos(now.saturating_mul(1_000_000_000)))?;
        let kubeconfig = read_kubeconfig(&self.kubeconfig, &mut Vec::new());
        let current = Pem::File(self.store.current_path());
        let is_linked = kubeconfig.as_ref().is_some_and(|kubeconfig| {
            kubeconfig.certificate.as_ref().is_some_and(|(pair, key)| *pair == current && *key == current)
        });
        if !is_linked || from_bootstrap {
            let bootstrap = self.bootstrap_kubeconfig.as_deref().filter(|_| from_bootstrap || kubeconfig.is_none());
            let cluster = bootstrap.and_then(|path| read_kubeconfig(path, &mut Vec::new())).or(kubeconfig);
            if let Some(cluster) = cluster {
                self.write_kubeconfig(&cluster)?;
            }
        }
        self.store.forget_key()
    }

    fn write_kubeconfig(&self, cluster: &Kubeconfig) -> Result<(), StoreError> {
        let text = kubeconfig::of_pair(cluster, &self.store.current_path());
        let path = &self.kubeconfig;
        // A kubeconfig that cannot be read is kept aside: it may be the user's only copy.
        if path.exists() && read_kubeconfig(path, &mut Vec::new()).is_none() {
            let _ = set_aside(path);
        }
        file::replace(path, text.as_bytes()).map_err(|cause| StoreError::io("write", path, cause))
    }

    /// Removes the token that `coracle join` has left for the first certificate. A user's own stays.
    fn remove_used_bootstrap(&self) -> bool {
        let Some(path) = &self.bootstrap_kubeconfig else { return false };
        let text = file::read_all(path, MAX_INSPECTED_FILE_BYTES).unwrap_or_default();
        let is_removed = text.starts_with(kubeconfig::BOOTSTRAP_ONCE.as_bytes()) && fs::remove_file(path).is_ok();
        if is_removed {
            log!(info, "removed the used bootstrap token", file = path.display());
        }
        is_removed
    }

    fn kubeconfig(&self, faults: &mut Vec<String>) -> KubeconfigContent {
        let Some(kubeconfig) = read_kubeconfig(&self.kubeconfig, faults) else { return KubeconfigContent::default() };
        let mut text = |pem: &Pem| match pem {
            Pem::Data(data) => Some(data.clone()),
            Pem::File(path) => match file::read_all(path, MAX_INSPECTED_FILE_BYTES) {
                Ok(text) => Some(text),
                Err(error) => {
                    faults.push(format!("read {}: {error}", path.display()));
                    None
                }
            },
        };
        let texts = kubeconfig.certificate.as_ref().and_then(|(pair, key)| Some((text(pair)?, text(key)?)));
        let is_embedded = matches!(&kubeconfig.certificate, Some((Pem::Data(_), _)));
        let pair = texts.and_then(|(pair, key)| match Pair::from_pem(&pair, &key) {
            Ok(pair) => Some(pair),
            Err(error) => {
                faults.push(format!("{}: {}", self.kubeconfig.display(), ErrorChain(&error)));
                None
            }
        });
        KubeconfigContent { kubeconfig: Some(kubeconfig), pair, is_embedded }
    }

    fn files(&self, kubeconfig: Option<&Kubeconfig>) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            [&self.kubeconfig].into_iter().chain(&self.bootstrap_kubeconfig).cloned().collect();
        let pair = kubeconfig.and_then(|kubeconfig| kubeconfig.certificate.as_ref());
        let pems = pair.into_iter().flat_map(|(pair, key)| [pair, key]);
        let pems = pems.chain(kubeconfig.and_then(|kubeconfig| kubeconfig.authority.as_ref()));
        files.extend(pems.filter_map(|pem| match pem {
            Pem::File(path) => Some(path.clone()),
            Pem::Data(_) => None,
        }));
        files.sort_once();
        files.dedup();
        files
    }
}

/// The node name in the kubeconfig's client certificate. Blocks.
pub(crate) fn node_of_kubeconfig(path: &Path) -> Option<String> {
    let kubeconfig = read_kubeconfig(path, &mut Vec::new())?;
    let text = match kubeconfig.certificate?.0 {
        Pem::Data(text) => text,
        Pem::File(path) => file::read_all(&path, MAX_INSPECTED_FILE_BYTES).ok()?,
    };
    let certificate = Certificate::read(pem::certificates(&text).ok()?.first()?).ok()?;
    certificate.common_name.strip_prefix("system:node:").map(str::to_owned)
}

/// The content of the kubeconfig, and its pair if that can be read.
#[derive(Debug, Default)]
struct KubeconfigContent {
    kubeconfig: Option<Kubeconfig>,
    pair: Option<Pair>,
    is_embedded: bool,
}

impl KubeconfigContent {
    fn uses_token(&self) -> bool {
        self.kubeconfig.as_ref().is_some_and(|kubeconfig| kubeconfig.token.is_some())
    }

    /// Whether the stored pair is better than the kubeconfig's credentials.
    fn is_worse_than(&self, stored: &Pair, names: &Names, present: KnownTime) -> bool {
        let is_good = |pair: &Pair| {
            names.are_in(&pair.leaf)
                && HeldCertificate::new(&pair.leaf, None).standing(present) != RenewalState::Expired
        };
        let is_own = self.pair.as_ref().is_some_and(|pair| !self.is_embedded && is_good(pair));
        !is_own && !self.uses_token() && is_good(stored)
    }
}

/// The latest time that is certainly past: when these certificates were issued and this program was built.
pub(super) fn floor(certificates: [Option<&Certificate>; 2], authority: Option<&[u8]>) -> Seconds {
    let made = certificates.into_iter().flatten().map(|certificate| certificate.not_before);
    made.chain(authority.and_then(newest)).chain(clock::built()).max().unwrap_or(0)
}

/// Reads the kubeconfig. A missing file is not a fault.
pub(super) fn read_kubeconfig(path: &Path, faults: &mut Vec<String>) -> Option<Kubeconfig> {
    if !fs::exists(path).unwrap_or(true) {
        return None;
    }
    let text =
        file::read_all(path, MAX_INSPECTED_FILE_BYTES).map_err(|error| format!("read {}: {error}", path.display()));
    let folder = path.parent().unwrap_or(Path::new("/"));
    let read =
        text.and_then(|text| Kubeconfig::read(&text, folder).map_err(|error| format!("{}: {error}", path.display())));
    read.map_err(|fault| faults.push(fault)).ok()
}

fn authority_of(kubeconfig: &Kubeconfig) -> Option<Vec<u8>> {
    match kubeconfig.authority.as_ref()? {
        Pem::Data(data) => Some(data.clone()),
        Pem::File(path) => file::read_all(path, MAX_INSPECTED_FILE_BYTES).ok(),
    }
}

/// The latest `notBefore` of these certificates.
fn newest(pem: &[u8]) -> Option<Seconds> {
    let read = pem::certificates(pem).ok()?;
    read.iter().filter_map(|der| Certificate::read(der).ok()).map(|certificate| certificate.not_before).max()
}
