//! A self-signed serving certificate, in upstream's files `kubelet.crt` and `kubelet.key`.

use std::path::{Path, PathBuf};

use super::files::read_pair;
use super::validity::{self, Validity};
use super::{ServingCertificateCell, entry};
use crate::kubelet::certificates::certificate_status::CertificateEntry;
use crate::kubelet::certificates::events::CertificateEvents;
use crate::kubelet::certificates::key::{Key, KeyError};
use crate::kubelet::certificates::pair::Pair;
use crate::kubelet::certificates::pkcs10::{Names, self_signed};
use crate::kubelet::certificates::rotation::{NextRotation, Seconds};
use crate::kubelet::certificates::store::StoreError;
use crate::kubelet::certificates::waits::{changed, due};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::{clock, file};
use crate::platform::rt;
use crate::protocol::pem;
use crate::types::api::Time;
use crate::types::error::ErrorChain;

pub(super) async fn run(node_name: &str, directory: &Path, cell: &ServingCertificateCell, events: &CertificateEvents) {
    let files = [directory.join("kubelet.crt"), directory.join("kubelet.key")];
    let wanted = Wanted { names: names_of(node_name), years: 1 };
    keep(&wanted, &files, cell, &|entry| events.note(entry)).await;
}

/// What a certificate is for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The common name gets the time of the certificate appended.
    pub(super) names: Names,
    pub(super) years: Seconds,
}

/// Shows the certificate in the files, or a new one when that is missing, has expired or has other names. Never returns.
pub(super) async fn keep(
    wanted: &Wanted,
    files: &[PathBuf; 2],
    cell: &ServingCertificateCell,
    note: &dyn Fn(CertificateEntry),
) {
    // A certificate that could not be written is kept in memory.
    let mut held: Option<Pair> = None;
    loop {
        let watch = FileWatch::new(files);
        let (paths, wanted, kept) = (files.clone(), wanted.clone(), held.take());
        let (pair, fault) = rt::blocking(move || pair(&paths, &wanted, kept)).await;
        let now = clock::now().unix_seconds();
        let is_kept = fault.is_none();
        let end = match &pair {
            Some(pair) => {
                cell.show(pair);
                note(CertificateEntry { fault, ..entry(pair, now) });
                pair.leaf.not_after.saturating_add(1)
            }
            None => {
                note(CertificateEntry { fault, ..CertificateEntry::default() });
                Seconds::MAX
            }
        };
        held = pair.filter(|_| !is_kept);
        // It seems expired because the clock is wrong; wait until the clock is set.
        let end = if end <= now { Seconds::MAX } else { end };
        rt::either(changed(&watch), due(NextRotation::Date(end))).await;
    }
}

/// The pair in the files if it is valid, else `present` if that is, else a new one, with the error of storing it.
/// Blocks.
fn pair(files: &[PathBuf; 2], wanted: &Wanted, present: Option<Pair>) -> (Option<Pair>, Option<String>) {
    let (clock, built) = (clock::now().unix_seconds(), clock::built());
    let is_there = files.iter().any(|file| file.exists());
    let read = read_pair(files);
    if let (Err(error), true) = (&read, is_there) {
        log!(warn, "replacing self-signed serving certificate", error = ErrorChain(error));
    }
    let good = read.ok().or(present).filter(|pair| {
        let is_for = |names: &Names| {
            names.dns_names.iter().all(|name| pair.leaf.dns_names.contains(name))
                && names.ip_addresses.iter().all(|ip| pair.leaf.ip_addresses.contains(ip))
        };
        validity::can_stay(&pair.leaf, clock, built) && is_for(&wanted.names)
    });
    if good.is_some() {
        return (good, None);
    }
    let made = match make(wanted, validity::of_new(clock, built, wanted.years), clock) {
        Ok(made) => made,
        Err(error) => return (None, Some(format!("make a certificate: {error}"))),
    };
    let [certificate, key] = files;
    // The key first: a certificate without its key is detected, and both are replaced.
    let kept = [(key, made.key_pem().to_owned()), (certificate, made.certificates_pem())].into_iter().try_for_each(
        |(path, text)| file::replace(path, text.as_bytes()).map_err(|cause| StoreError::io("write", path, cause)),
    );
    log!(info, "self-signed serving certificate created", file = certificate.display(), kept = kept.is_ok());
    (Some(made), kept.err().map(|error| ErrorChain(&error).to_string()))
}

/// The node's name, or its address.
pub(super) fn names_of(node_name: &str) -> Names {
    let mut names = Names { common_name: node_name.to_owned(), ..Names::default() };
    match node_name.parse() {
        Ok(ip) => names.ip_addresses.push(ip),
        Err(_) => names.dns_names.push(node_name.to_owned()),
    }
    names
}

/// Like upstream's, each certificate has a different subject.
fn make(wanted: &Wanted, validity: Validity, clock: Seconds) -> Result<Pair, KeyError> {
    let key = Key::generate()?;
    let names = Names { common_name: format!("{}@{clock}", wanted.names.common_name), ..wanted.names.clone() };
    let time = |second: Seconds| Time::from_unix_nanos(second.saturating_mul(1_000_000_000));
    let der = self_signed(&key, &names, time(validity.not_before), time(validity.not_after))?;
    Pair::new(pem::encode(pem::CERTIFICATE, &der).as_bytes(), key).map_err(|_| KeyError::Unknown)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-own-making-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn files(&self) -> [PathBuf; 2] {
            [self.0.join("kubelet.crt"), self.0.join("kubelet.key")]
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn made(files: &[PathBuf; 2]) -> Pair {
        let (pair, fault) = pair(files, &Wanted { names: names_of("board"), years: 1 }, None);
        assert_eq!(fault, None);
        pair.unwrap()
    }

    #[test]
    fn certificate_is_created_once_for_the_node_name() {
        let folder = Folder::new("once");
        let first = made(&folder.files());
        assert_eq!(first.leaf.dns_names, ["board"]);
        assert!(first.leaf.common_name.starts_with("board@"));
        assert_eq!(made(&folder.files()).leaf, first.leaf);
    }

    #[test]
    fn damaged_expired_or_mismatched_pair_is_replaced() {
        let folder = Folder::new("anew");
        let files = folder.files();
        let first = made(&files);
        for (file, text) in
            [(&files[0], "nonsense".to_owned()), (&files[1], Key::generate().unwrap().to_pem().to_owned())]
        {
            fs::write(file, text).unwrap();
            let next = made(&files);
            assert_ne!(next.leaf, first.leaf);
            assert_eq!(read_pair(&files).unwrap().leaf, next.leaf);
        }
        let now = clock::now().unix_seconds();
        let expired = make(
            &Wanted { names: names_of("board"), years: 1 },
            Validity { not_before: now - 100, not_after: now - 50 },
            now,
        )
        .unwrap();
        fs::write(&files[0], expired.certificates_pem()).unwrap();
        fs::write(&files[1], expired.key_pem()).unwrap();
        assert!(made(&files).leaf.not_after > now);
    }

    #[test]
    fn unwritable_certificate_is_held_in_memory_and_reported() {
        let files = [PathBuf::from("/proc/none/kubelet.crt"), PathBuf::from("/proc/none/kubelet.key")];
        let (first, fault) = pair(&files, &Wanted { names: names_of("board"), years: 1 }, None);
        assert!(fault.unwrap().starts_with("write /proc/none/kubelet.key: "));
        let (next, fault) = pair(&files, &Wanted { names: names_of("board"), years: 1 }, first.clone());
        assert_eq!((next.unwrap().leaf, fault), (first.unwrap().leaf, None));
    }
}
