//! Whose certificates are believed of those who ask (`authentication.x509.clientCAFile`), read again when it changes.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, RootCertStore};

use super::error::{AuthoritiesError, CertificateError};
use super::user::User;
use crate::platform::apiserver::{believable, known_past};
use crate::platform::host::file_watch::FileWatch;
use crate::platform::host::{clock, file};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::protocol::pem;
use crate::protocol::x509::Certificate;
use crate::types::error::ErrorChain;

/// No list of authorities is larger.
const LIMIT: u64 = 1 << 20;
/// Where the kernel cannot tell of changes.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Those that are believed now.
#[derive(Debug, Default)]
pub(super) struct Authorities {
    known: RefCell<Option<Known>>,
    /// How often they have changed.
    generation: Cell<u64>,
    /// Each time that they were looked at.
    pub(super) looked: Signal,
}

#[derive(Debug)]
struct Known {
    verifier: Arc<dyn ClientCertVerifier>,
    /// The newest moment that is known to be past, in seconds since 1970.
    floor: u64,
}

/// What was found out of who is at the other end of a connection; it holds until the authorities are others, or the
/// certificate expires.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    generation: u64,
    until: i64,
    /// Or why it is nobody.
    pub(super) user: Result<User, CertificateError>,
}

impl Verified {
    pub(super) fn holds(&self, authorities: &Authorities) -> bool {
        self.generation == authorities.generation.get() && clock::now().unix_seconds() <= self.until
    }
}

impl Authorities {
    /// Reads them, and again whenever the file changes: `changed` is told each time. What cannot be read changes nothing.
    pub(super) async fn follow(&self, path: &Path, mut changed: impl FnMut(Option<Vec<DistinguishedName>>)) {
        let mut told = String::new();
        loop {
            let watch = FileWatch::new(&[path.to_owned()]);
            let file = path.to_owned();
            match rt::blocking(move || read(&file)).await {
                Ok(known) => {
                    told.clear();
                    let hints = known.verifier.root_hint_subjects().to_vec();
                    self.known.replace(Some(known));
                    self.generation.set(self.generation.get() + 1);
                    changed(Some(hints));
                }
                Err(error) => {
                    let fault = ErrorChain(&error).to_string();
                    if fault != told {
                        log!(warn, "whose certificates are believed is not known", clientCAFile = fault);
                        told = fault;
                    }
                }
            }
            self.looked.notify();
            match &watch {
                Ok(watch) if watch.changed().await.is_ok() => {}
                _ => rt::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Whom the certificates that a client has shown stand for; it has proved to have the key of the first.
    pub(super) fn verify(&self, shown: &[CertificateDer<'static>]) -> Verified {
        let (user, until) = match self.user(shown) {
            Ok((user, until)) => (Ok(user), until),
            // A clock that is set, or the next moment, may make another of it: it is looked at again each time.
            Err(error) => (Err(error), i64::MIN),
        };
        Verified { generation: self.generation.get(), until, user }
    }

    fn user(&self, shown: &[CertificateDer<'static>]) -> Result<(User, i64), CertificateError> {
        let known = self.known.borrow();
        let known = known.as_ref().ok_or(CertificateError::NoAuthorities)?;
        let (first, between) = shown.split_first().ok_or(CertificateError::NoCertificate)?;
        let now = u64::try_from(clock::now().unix_seconds()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(believable(now, known.floor, shown.iter())));
        known.verifier.verify_client_cert(first, between, now).map_err(CertificateError::Refused)?;
        let read = Certificate::read(first).map_err(CertificateError::Malformed)?;
        let user = User::of_certificate(&read, first).ok_or(CertificateError::NoName)?;
        Ok((user, read.not_after))
    }
}

/// Blocks.
fn read(path: &Path) -> Result<Known, AuthoritiesError> {
    let of_file = |source| AuthoritiesError { path: path.to_owned(), source };
    let text = file::read_all(path, LIMIT).map_err(|error| of_file(error.into()))?;
    let list = pem::certificates(&text).map_err(|error| of_file(error.into()))?;
    let floor = known_past(list.iter());
    let mut roots = RootCertStore::empty();
    for certificate in list {
        roots.add(certificate).map_err(|error| of_file(error.into()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(Known { verifier: verifier.map_err(|error| of_file(error.into()))?, floor })
}
