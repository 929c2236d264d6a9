//! Obtains and rotates the client certificate for the API server.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::certificate_status::{CertificateEntry, CertificateKind, CertificateStatuses};
use super::csr::{Endorsement, IssuedCertificate};
use super::csr_attempt::{AttemptError, request_with_any};
use super::events::CertificateEvents;
use super::inspect::{CredentialPaths, CredentialsMark, StoredCredentials, StoredPair};
use super::next_step::{CredentialState, OwnCertificate, OwnCredentials, Step};
use super::pkcs10::Names;
use super::reenrolment_key::ReenrolmentPaths;
use super::rotation::{Credentials, HeldCertificate, KnownTime, NextRotation, Seconds};
use super::signing_request::Purpose;
use super::store::StoreError;
use super::waits::{changed, clock_set, due};
use crate::platform::apiserver::{Client, Request};
use crate::platform::host::clock;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::net::Dialer;
use crate::platform::rt;
use crate::protocol::x509::Certificate;
use crate::state::pods::SyncEvent;

#[derive(Debug)]
pub(crate) struct ClientCertificate {
    pub(crate) names: Names,
    pub(crate) paths: CredentialPaths,
    /// `rotateCertificates`: renew the certificate before it expires.
    pub(crate) rotates: bool,
    /// Uses the credentials of the kubeconfig.
    pub(crate) client: Client,
    pub(crate) dialer: Dialer,
    pub(crate) statuses: Rc<CertificateStatuses>,
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Never returns. Failures are reported and retried.
pub(crate) async fn run(settings: ClientCertificate) {
    let events = CertificateEvents::new(CertificateKind::Client, Rc::clone(&settings.statuses), settings.inbox.clone());
    let mut keeper = ClientCertificateManager {
        settings,
        events,
        started: clock::uptime(),
        files: Vec::new(),
        mark: None,
        issued: None,
        refusals: 0,
        is_stranger: false,
    };
    loop {
        keeper.round().await;
    }
}

struct ClientCertificateManager {
    settings: ClientCertificate,
    events: CertificateEvents,
    started: Duration,
    /// Files that the watch covers.
    files: Vec<PathBuf>,
    /// The credentials that the connection was last built from.
    mark: Option<CredentialsMark>,
    /// The certificate issued to this process, and the uptime at that moment.
    issued: Option<(Certificate, Duration)>,
    /// The client's count of 401 responses when this was last checked.
    refusals: u64,
    is_stranger: bool,
}

/// Delay before the API server is requested again after a 401, if there are no other credentials to try.
const UNAUTHORIZED_RETRY_DELAY: Duration = Duration::from_secs(300);

impl ClientCertificateManager {
    async fn round(&mut self) {
        // Watched before they are read, so that no change is missed. Other files than before need another watch.
        let watch = FileWatch::new(&self.files);
        let stored = self.inspect().await;
        if stored.files != self.files {
            self.files = stored.files;
            return;
        }
        let present = self.present(&stored);
        let situation = self.situation(&stored);
        self.note(&stored, &situation, present);
        match situation.step(present) {
            Step::Rest { until } => {
                let has_certificate = matches!(situation.credentials, OwnCredentials::Certificate(_));
                rt::either(changed(&watch), self.wait(until, has_certificate)).await;
            }
            Step::Wait => {
                rt::either(changed(&watch), rt::sleep(UNAUTHORIZED_RETRY_DELAY)).await;
                self.is_stranger = false;
            }
            Step::Ask(credentials) => {
                let requested = async { Some(self.request_certificate(credentials, present).await) };
                let interrupted = async {
                    changed(&watch).await;
                    None
                };
                let Some(requested) = rt::either(requested, interrupted).await else { return };
                let done = match requested {
                    Ok((issued, with)) => self.store(issued, with, present).await.map_err(AttemptError::Store),
                    Err(error) => Err(error),
                };
                if let Err(fault) = done {
                    let leaf = match &stored.pair {
                        StoredPair::Certificate { leaf, .. } => Some(leaf),
                        StoredPair::None | StoredPair::Token => None,
                    };
                    let pause = self.events.failed(&fault, leaf, present);
                    rt::either(rt::sleep(pause), rt::either(changed(&watch), clock_set())).await;
                }
            }
        }
    }

    async fn inspect(&mut self) -> StoredCredentials {
        let (places, names) = (self.settings.paths.clone(), self.settings.names.clone());
        let stored = rt::blocking(move || places.inspect(&names, clock::now().unix_seconds())).await;
        if self.mark.as_ref() != Some(&stored.mark) {
            if self.mark.is_some() {
                self.settings.client.renew();
            }
            self.mark = Some(stored.mark.clone());
            self.is_stranger = false;
            self.events.failures = 0;
        }
        stored
    }

    /// The floor advances by the time that this process has run.
    fn present(&self, stored: &StoredCredentials) -> KnownTime {
        let counted = clock::uptime().saturating_sub(self.started).as_secs();
        let floor = stored.floor.saturating_add(Seconds::try_from(counted).unwrap_or_default());
        KnownTime { clock: clock::now().unix_seconds(), floor }
    }

    fn situation(&self, stored: &StoredCredentials) -> CredentialState {
        let credentials = match &stored.pair {
            StoredPair::None => OwnCredentials::None,
            StoredPair::Token => OwnCredentials::Token,
            StoredPair::Certificate { leaf, is_embedded } => {
                let issued = self.issued.as_ref().filter(|(issued, _)| issued == leaf);
                OwnCredentials::Certificate(OwnCertificate {
                    certificate: HeldCertificate::new(leaf, issued.map(|(_, at)| clock::uptime().saturating_sub(*at))),
                    is_for_node: self.settings.names.are_in(leaf),
                    is_embedded: *is_embedded,
                })
            }
        };
        CredentialState {
            credentials,
            has_bootstrap: stored.has_bootstrap,
            has_reenrolment: stored.has_reenrolment,
            rotates: self.settings.rotates,
            is_stranger: self.is_stranger,
        }
    }

    /// Waits until `until`, or until the API server rejects the node's credentials.
    async fn wait(&mut self, until: Option<NextRotation>, has_certificate: bool) {
        let client = self.settings.client.clone();
        let refused = async {
            match has_certificate {
                true => client.unauthorized().beyond(self.refusals).await,
                false => std::future::pending().await,
            }
            true
        };
        let due = async {
            match until {
                Some(until) => due(until).await,
                None => std::future::pending().await,
            }
            false
        };
        if rt::either(refused, due).await {
            // The 401 may have been for credentials that have been replaced since.
            let response = client.send(&Request::get("/version")).await;
            self.is_stranger = response.is_err_and(|error| error.is_unauthorized());
            self.refusals = client.unauthorized().changes();
        }
    }

    async fn request_certificate(
        &self,
        credentials: &[Credentials],
        present: KnownTime,
    ) -> Result<(IssuedCertificate, Credentials), AttemptError> {
        let settings = &self.settings;
        let reenrolment = settings.paths.reenrolment.clone();
        let client_with = |with: &Credentials| {
            let other = match with {
                Credentials::Bootstrap => settings.paths.bootstrap_kubeconfig.clone(),
                Credentials::Reenrolment => reenrolment.as_ref().map(ReenrolmentPaths::kubeconfig),
                Credentials::Own => None,
            };
            match other {
                Some(path) => settings.client.beside(path, settings.dialer.clone()),
                None => settings.client.clone(),
            }
        };
        let clients: Vec<Client> = credentials.iter().map(client_with).collect();
        let store = &settings.paths.store;
        let awaits = |request: &str| self.events.awaits(request);
        let endorsement = match reenrolment.clone().filter(|_| credentials.contains(&Credentials::Reenrolment)) {
            Some(paths) => rt::blocking(move || paths.read_key()).await.unwrap_or_else(|error| {
                log!(warn, "re-enrolment key cannot be used", error = error);
                None
            }),
            None => None,
        };
        let endorsement = endorsement.map(|key| Endorsement { key, awaits: &awaits });
        let names = &settings.names;
        let (issued, number) =
            request_with_any(store, Purpose::Client, names, &clients, endorsement.as_ref(), present).await?;
        Ok((issued, credentials.get(number).copied().unwrap_or(Credentials::Own)))
    }

    async fn store(
        &mut self,
        issued: IssuedCertificate,
        with: Credentials,
        present: KnownTime,
    ) -> Result<(), StoreError> {
        let places = self.settings.paths.clone();
        let pair = issued.pair.clone();
        let from_bootstrap = with == Credentials::Bootstrap;
        rt::blocking(move || places.store(&pair, from_bootstrap, present.now())).await?;
        let leaf = issued.pair.leaf;
        self.events.issued(&leaf);
        self.issued = issued.is_fresh.then(|| (leaf, clock::uptime()));
        Ok(())
    }

    fn note(&self, stored: &StoredCredentials, situation: &CredentialState, present: KnownTime) {
        let mut entry = CertificateEntry { fault: stored.faults.first().cloned(), ..CertificateEntry::default() };
        if let OwnCredentials::Certificate(renewal) = situation.credentials {
            entry.not_after = Some(renewal.certificate.not_after);
            entry.standing = Some(renewal.certificate.standing(present));
        }
        if situation.is_stranger {
            entry.fault = Some("the API server rejects this certificate".to_owned());
        }
        self.events.note(entry);
    }
}
