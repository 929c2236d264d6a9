//! A serving certificate from files that are managed elsewhere; reloaded when they change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ServingCertificateCell, entry};
use crate::kubelet::certificates::certificate_status::CertificateEntry;
use crate::kubelet::certificates::events::CertificateEvents;
use crate::kubelet::certificates::pair::{Pair, PairError};
use crate::kubelet::certificates::rotation::NextRotation;
use crate::kubelet::certificates::waits::{changed, due};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::{clock, file};
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// Size limit of certificate and key files.
const MAX_SERVING_FILE_BYTES: u64 = 1 << 20;
/// Two files are replaced one after the other; in between they do not match.
const CERTIFICATE_PAIR_WAIT: Duration = Duration::from_millis(200);

pub(super) async fn run(files: [PathBuf; 2], cell: &ServingCertificateCell, events: &CertificateEvents) {
    let mut last: Option<Pair> = None;
    loop {
        let watch = FileWatch::new(&files);
        let paths = files.clone();
        let read = rt::blocking(move || read_pair(&paths)).await;
        let now = clock::now().unix_seconds();
        let fault = match read {
            Ok(pair) => {
                cell.show(&pair);
                last = Some(pair);
                None
            }
            // The previous certificate stays in use.
            Err(error) => Some(ErrorChain(&error).to_string()),
        };
        let loaded = last.as_ref().map_or_else(CertificateEntry::default, |pair| entry(pair, now));
        events.note(CertificateEntry { fault, ..loaded });
        let end = last.as_ref().map(|pair| pair.leaf.not_after).filter(|end| *end >= now);
        let ended = async {
            match end {
                Some(end) => due(NextRotation::Date(end.saturating_add(1))).await,
                None => std::future::pending().await,
            }
        };
        rt::either(changed(&watch), ended).await;
        rt::sleep(CERTIFICATE_PAIR_WAIT).await;
    }
}

/// Why two files are not a certificate with its key.
#[derive(Debug)]
pub(super) enum FilesError {
    Pair { certificate: PathBuf, key: PathBuf, source: PairError },
    Read { path: PathBuf, source: io::Error },
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair { certificate, key, .. } => write!(f, "{} and {}", certificate.display(), key.display()),
            Self::Read { path, .. } => write!(f, "read {}", path.display()),
        }
    }
}

impl std::error::Error for FilesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pair { source, .. } => Some(source),
            Self::Read { source, .. } => Some(source),
        }
    }
}

/// The certificate of the first file with the key of the second. Blocks.
pub(super) fn read_pair(files: &[PathBuf; 2]) -> Result<Pair, FilesError> {
    let [certificate, key] = files;
    let read = |path: &Path| {
        file::read_all(path, MAX_SERVING_FILE_BYTES)
            .map_err(|source| FilesError::Read { path: path.to_owned(), source })
    };
    let pair = Pair::from_pem(&read(certificate)?, &read(key)?);
    pair.map_err(|source| FilesError::Pair { certificate: certificate.clone(), key: key.clone(), source })
}
