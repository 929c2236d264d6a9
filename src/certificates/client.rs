//! Keeps the certificate that the node shows to the API server: the first one, and each one after it.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::ask::{AskError, Issued, ask};
use super::book::{CertificateBook, CertificateEntry, Which};
use super::look::{Found, FoundOwn, Mark, Places};
use super::request::Names;
use super::rotation::{Credentials, Failure, Held, Present, Seconds, Standing, Until, wait};
use super::signing_request::Purpose;
use super::situation::{Own, OwnCertificate, Situation, Step};
use super::store::StoreError;
use crate::api::{EventKind, Reason, Time};
use crate::apiserver::{Client, Request, Source};
use crate::error::ErrorChain;
use crate::host::file_watch::FileWatch;
use crate::host::{clock, wall_timer};
use crate::net::Dialer;
use crate::pods::{NodeEvent, SyncEvent};
use crate::rt;
use crate::wire::x509::Certificate;

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
    pub(crate) book: Rc<CertificateBook>,
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Runs for ever. Whatever fails is told, and tried again.
pub(crate) async fn run(settings: ClientCertificate) {
    let mut keeper = Keeper {
        settings,
        started: clock::uptime(),
        files: Vec::new(),
        mark: None,
        issued: None,
        failures: 0,
        refusals: 0,
        is_stranger: false,
        told: String::new(),
    };
    loop {
        keeper.round().await;
    }
}

struct Keeper {
    settings: ClientCertificate,
    started: Duration,
    /// What is watched.
    files: Vec<PathBuf>,
    /// What the connection is made with, as it was last looked at.
    mark: Option<Mark>,
    /// What this process was issued, and when: by a clock that nobody sets.
    issued: Option<(Certificate, Duration)>,
    failures: u32,
    /// How often the server had said, when it was last asked about it, that it does not know who asks.
    refusals: u64,
    is_stranger: bool,
    /// The last failure that was told of: each one once.
    told: String,
}

/// A server that knows the node no more is asked again after this, where there is nothing else to ask with.
const STRANGER: Duration = Duration::from_secs(300);
/// Where the kernel cannot tell of changes.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

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
                    let pause = self.failed(&fault, &found, present);
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
            self.failures = 0;
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
                Some(Until::Date(second)) => wall_timer::until(second).await,
                Some(Until::Span(span)) => rt::either(rt::sleep(span), clock_set()).await,
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
        let store = settings.places.store.clone();
        let key = rt::blocking(move || store.key()).await.map_err(Fault::Store)?;
        let mut refused = None;
        for with in credentials {
            let client = match (with, &settings.places.bootstrap_kubeconfig) {
                (Credentials::Bootstrap, Some(path)) => {
                    Client::new(Source::Kubeconfig(path.clone()), settings.dialer.clone())
                }
                _ => settings.client.clone(),
            };
            let asked = ask(&client, Purpose::Client, &settings.names, &key).await.and_then(|issued| {
                let standing = Held::new(&issued.pair.leaf, None).standing(present);
                let is_old = !issued.is_fresh && !matches!(standing, Standing::Good { .. });
                if is_old { Err(AskError::Old) } else { Ok(issued) }
            });
            match asked {
                Ok(issued) => return Ok((issued, *with)),
                Err(error) if error.is_about_who_asks() => refused = Some(error),
                Err(error) => {
                    if error.spends_the_key() {
                        let store = settings.places.store.clone();
                        rt::blocking(move || store.forget_key()).await.map_err(Fault::Store)?;
                    }
                    return Err(Fault::Ask(error));
                }
            }
        }
        Err(refused.map_or(Fault::Nothing, Fault::Ask))
    }

    async fn put(&mut self, issued: Issued, with: Credentials, present: Present) -> Result<(), StoreError> {
        let places = self.settings.places.clone();
        let pair = issued.pair.clone();
        let from_bootstrap = with == Credentials::Bootstrap;
        rt::blocking(move || places.put(&pair, from_bootstrap, present.now())).await?;
        let leaf = issued.pair.leaf;
        let until = date(leaf.not_after);
        self.tell(
            EventKind::Normal,
            Reason::CERTIFICATE_ISSUED,
            format!("client certificate issued, good until {until}"),
        );
        self.issued = issued.is_fresh.then(|| (leaf, clock::uptime()));
        self.failures = 0;
        self.told.clear();
        Ok(())
    }

    /// Tells of it, and gives how long to wait.
    fn failed(&mut self, fault: &Fault, found: &Found, present: Present) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let why = fault.to_string();
        let message = match &found.own {
            FoundOwn::Certificate { leaf, .. } => {
                let ends = if present.now() > leaf.not_after { "it expired" } else { "it is good until" };
                format!("no new client certificate: {why} ({ends} {})", date(leaf.not_after))
            }
            FoundOwn::Nobody | FoundOwn::Token => format!("no client certificate: {why}"),
        };
        if self.told != message {
            self.tell(EventKind::Warning, Reason::CERTIFICATE_REQUEST_FAILED, message.clone());
            self.told = message;
        }
        let mut entry = self.settings.book.entry(Which::Client);
        entry.fault = Some(why);
        self.settings.book.note(Which::Client, entry);
        let random = u16::try_from(rt::random() >> 16).unwrap_or_default();
        wait(self.failures, fault.failure(), random)
    }

    /// Notes what is so, and tells of an end.
    fn note(&self, found: &Found, situation: &Situation, present: Present) {
        let before = self.settings.book.entry(Which::Client);
        let mut entry = CertificateEntry { fault: found.faults.first().cloned(), ..CertificateEntry::default() };
        if let Own::Certificate(own) = situation.own {
            entry.not_after = Some(own.held.not_after);
            entry.standing = Some(own.held.standing(present));
        }
        if entry.fault.is_none() && self.failures > 0 {
            entry.fault.clone_from(&before.fault);
        }
        if situation.is_stranger {
            entry.fault = Some("the API server does not know this certificate any more".to_owned());
        }
        let has_expired = entry.standing == Some(Standing::Expired);
        if has_expired && before.standing != entry.standing {
            let message = format!("client certificate expired {}", date(entry.not_after.unwrap_or_default()));
            self.tell(EventKind::Warning, Reason::CERTIFICATE_EXPIRED, message);
        }
        if let Some(fault) = entry.fault.as_ref().filter(|fault| before.fault.as_ref() != Some(fault)) {
            log!(warn, "credentials for the cluster", error = fault);
        }
        self.settings.book.note(Which::Client, entry);
    }

    fn tell(&self, kind: EventKind, reason: Reason, message: String) {
        // Events may be lost, this loop may not stand still.
        let _ = self.settings.inbox.try_send(SyncEvent::NodeHappened(NodeEvent::new(kind, reason, message)));
    }
}

/// Why there is no new certificate.
#[derive(Debug)]
enum Fault {
    Ask(AskError),
    Store(StoreError),
    Nothing,
}

impl Fault {
    fn failure(&self) -> Failure {
        match self {
            Self::Ask(error) => error.failure(),
            Self::Store(_) => Failure::Passing,
            Self::Nothing => Failure::Refused,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ask(error) => ErrorChain(error).fmt(f),
            Self::Store(error) => ErrorChain(error).fmt(f),
            Self::Nothing => f.write_str("there is nothing to ask with"),
        }
    }
}

/// Returns when one of the files may have changed.
async fn changed(watch: &io::Result<FileWatch>) {
    match watch {
        Ok(watch) if watch.changed().await.is_ok() => {}
        _ => rt::sleep(LOOK_AGAIN).await,
    }
}

/// Returns when somebody sets the clock.
async fn clock_set() {
    wall_timer::until(Seconds::MAX).await;
}

fn date(second: Seconds) -> Time {
    Time::from_unix_nanos(second.saturating_mul(1_000_000_000))
}
