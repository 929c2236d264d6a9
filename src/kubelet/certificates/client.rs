//! Keeps the certificate that the node shows to the API server: the first one, and each one after it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::certificate_status::{CertificateEntry, CertificateStatuses, Which};
use super::csr::Issued;
use super::csr_attempt::{Fault, pursue};
use super::events::Teller;
use super::inspect::{Found, FoundOwn, Mark, Places};
use super::next_step::{Own, OwnCertificate, Situation, Step};
use super::pkcs10::Names;
use super::rotation::{Credentials, Held, Present, Seconds, Until};
use super::signing_request::Purpose;
use super::store::StoreError;
use super::waits::{changed, clock_set, due};
use crate::platform::apiserver::{Client, Request, Source};
use crate::platform::host::clock;
use crate::platform::host::file_watch::FileWatch;
use crate::platform::net::Dialer;
use crate::platform::rt;
use crate::protocol::x509::Certificate;
use crate::state::pods::SyncEvent;

/// What it takes to keep a client certificate.
#[derive(Debug)]
pub(crate) struct ClientCertificate {
    pub(crate) names: Names,
    pub(crate) places: Places,
    /// It is replaced before it expires.
    pub(crate) rotates: bool,
    /// Speaks with what the kubeconfig says.
    pub(crate) client: Client,
    pub(crate) dialer: Dialer,
    pub(crate) book: Rc<CertificateStatuses>,
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Runs for ever. Whatever fails is told, and tried again.
pub(crate) async fn run(settings: ClientCertificate) {
    let teller = Teller::new(Which::Client, Rc::clone(&settings.book), settings.inbox.clone());
    let mut keeper = Keeper {
        settings,
        teller,
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

struct Keeper {
    settings: ClientCertificate,
    teller: Teller,
    started: Duration,
    /// What is watched.
    files: Vec<PathBuf>,
    /// What the connection is made with, as it was last looked at.
    mark: Option<Mark>,
    /// What this process was issued, and when: by a clock that nobody sets.
    issued: Option<(Certificate, Duration)>,
    /// How often the server had said, when it was last asked about it, that it does not know who asks.
    refusals: u64,
    is_stranger: bool,
}

/// A server that knows the node no more is asked again after this, where there is nothing else to ask with.
const STRANGER: Duration = Duration::from_secs(300);

impl Keeper {
    async fn round(&mut self) {
        let watch = FileWatch::new(&self.files);
        let found = self.look().await;
        if found.files != self.files {
            self.files = found.files;
            return;
        }
        let present = self.present(&found);
        let situation = self.situation(&found);
        self.note(&found, &situation, present);
        match situation.step(present) {
            Step::Rest { until } => {
                let has_certificate = matches!(situation.own, Own::Certificate(_));
                rt::either(changed(&watch), self.rest(until, has_certificate)).await;
            }
            Step::Wait => {
                rt::either(changed(&watch), rt::sleep(STRANGER)).await;
                self.is_stranger = false;
            }
            Step::Ask(credentials) => {
                let asked = async { Some(self.ask(credentials, present).await) };
                let interrupted = async {
                    changed(&watch).await;
                    None
                };
                let Some(asked) = rt::either(asked, interrupted).await else { return };
                let done = match asked {
                    Ok((issued, with)) => self.put(issued, with, present).await.map_err(Fault::Store),
                    Err(error) => Err(error),
                };
                if let Err(fault) = done {
                    let leaf = match &found.own {
                        FoundOwn::Certificate { leaf, .. } => Some(leaf),
                        FoundOwn::Nobody | FoundOwn::Token => None,
                    };
                    let pause = self.teller.failed(&fault, leaf, present);
                    rt::either(rt::sleep(pause), rt::either(changed(&watch), clock_set())).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Found {
        let (places, names) = (self.settings.places.clone(), self.settings.names.clone());
        let found = rt::blocking(move || places.look(&names, clock::now().unix_seconds())).await;
        if self.mark.as_ref() != Some(&found.mark) {
            if self.mark.is_some() {
                self.settings.client.renew();
            }
            self.mark = Some(found.mark.clone());
            self.is_stranger = false;
            self.teller.failures = 0;
        }
        found
    }

    /// What was past when this process began is past for longer by now.
    fn present(&self, found: &Found) -> Present {
        let counted = clock::uptime().saturating_sub(self.started).as_secs();
        let floor = found.floor.saturating_add(Seconds::try_from(counted).unwrap_or_default());
        Present { clock: clock::now().unix_seconds(), floor }
    }

    fn situation(&self, found: &Found) -> Situation {
        let own = match &found.own {
            FoundOwn::Nobody => Own::Nobody,
            FoundOwn::Token => Own::Token,
            FoundOwn::Certificate { leaf, is_embedded } => {
                let issued = self.issued.as_ref().filter(|(issued, _)| issued == leaf);
                Own::Certificate(OwnCertificate {
                    held: Held::new(leaf, issued.map(|(_, at)| clock::uptime().saturating_sub(*at))),
                    is_for_node: self.settings.names.are_in(leaf),
                    is_embedded: *is_embedded,
                })
            }
        };
        Situation {
            own,
            has_bootstrap: found.has_bootstrap,
            rotates: self.settings.rotates,
            is_stranger: self.is_stranger,
        }
    }

    /// Waits until something is due, or the server says that it does not know this node.
    async fn rest(&mut self, until: Option<Until>, has_certificate: bool) {
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
            // Somebody may have been refused with what has been replaced since.
            let answer = client.send(&Request::get("/version")).await;
            self.is_stranger = answer.is_err_and(|error| error.is_unauthorized());
            self.refusals = client.unauthorized().changes();
        }
    }

    async fn ask(&self, credentials: &[Credentials], present: Present) -> Result<(Issued, Credentials), Fault> {
        let settings = &self.settings;
        let client_with = |with: &Credentials| match (with, &settings.places.bootstrap_kubeconfig) {
            (Credentials::Bootstrap, Some(path)) => {
                settings.client.beside(Source::Kubeconfig(path.clone()), settings.dialer.clone())
            }
            _ => settings.client.clone(),
        };
        let clients: Vec<Client> = credentials.iter().map(client_with).collect();
        let store = &settings.places.store;
        let (issued, number) = pursue(store, Purpose::Client, &settings.names, &clients, present).await?;
        Ok((issued, credentials.get(number).copied().unwrap_or(Credentials::Own)))
    }

    async fn put(&mut self, issued: Issued, with: Credentials, present: Present) -> Result<(), StoreError> {
        let places = self.settings.places.clone();
        let pair = issued.pair.clone();
        let from_bootstrap = with == Credentials::Bootstrap;
        rt::blocking(move || places.put(&pair, from_bootstrap, present.now())).await?;
        let leaf = issued.pair.leaf;
        self.teller.issued(&leaf);
        self.issued = issued.is_fresh.then(|| (leaf, clock::uptime()));
        Ok(())
    }

    fn note(&self, found: &Found, situation: &Situation, present: Present) {
        let mut entry = CertificateEntry { fault: found.faults.first().cloned(), ..CertificateEntry::default() };
        if let Own::Certificate(own) = situation.own {
            entry.not_after = Some(own.held.not_after);
            entry.standing = Some(own.held.standing(present));
        }
        if situation.is_stranger {
            entry.fault = Some("the API server does not know this certificate any more".to_owned());
        }
        self.teller.note(entry);
    }
}
