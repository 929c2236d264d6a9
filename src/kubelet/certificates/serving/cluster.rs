//! A serving certificate signed by the cluster (`serverTLSBootstrap`), and its rotation.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use super::ServingCertificateCell;
use crate::kubelet::certificates::certificate_status::CertificateEntry;
use crate::kubelet::certificates::csr::IssuedCertificate;
use crate::kubelet::certificates::csr_attempt::request_with_any;
use crate::kubelet::certificates::events::CertificateEvents;
use crate::kubelet::certificates::inspect::floor;
use crate::kubelet::certificates::pair::Pair;
use crate::kubelet::certificates::pkcs10::Names;
use crate::kubelet::certificates::rotation::{HeldCertificate, KnownTime, NextRotation, RenewalState, Seconds};
use crate::kubelet::certificates::signing_request::Purpose;
use crate::kubelet::certificates::store::Store;
use crate::kubelet::certificates::waits::{clock_set, due};
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::Client;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::protocol::x509::Certificate;
use crate::types::api::Time;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Timed};

pub(super) async fn run(
    names: impl Fn() -> Option<Names>,
    client: Client,
    status_inputs: &StatusInputs,
    directory: PathBuf,
    cell: &ServingCertificateCell,
    events: CertificateEvents,
) {
    let store = Store::new(directory, "kubelet-server");
    let mut keeper =
        ServingCertificateManager { client, store, events, started: clock::uptime(), current: None, issued: None };
    keeper.load(cell).await;
    loop {
        let seen = status_inputs.addresses_changed.changes();
        keeper.round(names(), status_inputs.addresses_changed.beyond(seen), cell).await;
    }
}

struct ServingCertificateManager {
    client: Client,
    store: Store,
    events: CertificateEvents,
    started: Duration,
    /// The pair shown to clients.
    current: Option<Pair>,
    /// The certificate issued to this process, and the uptime at that moment.
    issued: Option<(Certificate, Duration)>,
}

impl ServingCertificateManager {
    /// Loads the pair that an earlier process obtained.
    async fn load(&mut self, cell: &ServingCertificateCell) {
        let store = self.store.clone();
        let stored = rt::blocking(move || store.current()).await;
        let fault = stored.as_ref().err().map(|error| ErrorChain(error).to_string());
        self.current = stored.unwrap_or_default();
        if let Some(pair) = &self.current {
            cell.show(pair);
        }
        self.note(fault, self.present());
    }

    /// Does one step or waits for it. Ends early when the node's addresses change.
    async fn round(&mut self, wanted: Option<Names>, moved: impl Future<Output = ()>, cell: &ServingCertificateCell) {
        let present = self.present();
        self.note(None, present);
        let Some(names) = wanted else { return moved.await };
        if let Some(until) = self.rests(&names, present) {
            return rt::either(moved, due(until)).await;
        }
        let mut moved = pin!(moved);
        let clients = [self.client.clone()];
        let requested =
            async { Some(request_with_any(&self.store, Purpose::Serving, &names, &clients, None, present).await) };
        let interrupted = async {
            moved.as_mut().await;
            None
        };
        match rt::either(requested, interrupted).await {
            None => {}
            Some(Ok((issued, _))) => self.store(issued, present, cell).await,
            Some(Err(fault)) => {
                let pause = self.events.failed(&fault, self.current.as_ref().map(|pair| &pair.leaf), present);
                rt::either(rt::sleep(pause), rt::either(clock_set(), moved)).await;
            }
        }
    }

    /// When the next renewal is due, if the current certificate has these names.
    fn rests(&self, names: &Names, present: KnownTime) -> Option<NextRotation> {
        let leaf = &self.current.as_ref()?.leaf;
        let held = self.held_certificate(leaf);
        match held.standing(present) {
            RenewalState::Good { until } if names.are_in(leaf) => Some(held.wait(until, present)),
            RenewalState::Good { .. } | RenewalState::Due | RenewalState::Expired => None,
        }
    }

    async fn store(&mut self, issued: IssuedCertificate, present: KnownTime, cell: &ServingCertificateCell) {
        let IssuedCertificate { pair, is_fresh } = issued;
        let (store, put) = (self.store.clone(), pair.clone());
        let time = Time::from_unix_nanos(present.now().saturating_mul(1_000_000_000));
        let stored = rt::blocking(move || store.put(&put, time).and_then(|()| store.forget_key())).await;
        if let Some(former) = &self.current {
            let age = present.now().saturating_sub(former.leaf.not_before);
            metrics::took(Timed::ServingRotations, &[], Duration::from_secs(u64::try_from(age).unwrap_or(0)));
        }
        // A certificate that cannot be stored is still usable.
        cell.show(&pair);
        self.events.issued(&pair.leaf);
        self.issued = is_fresh.then(|| (pair.leaf.clone(), clock::uptime()));
        self.current = Some(pair);
        if let Err(error) = stored {
            log!(warn, "failed to store serving certificate", error = ErrorChain(&error));
        }
    }

    fn held_certificate(&self, leaf: &Certificate) -> HeldCertificate {
        let issued = self.issued.as_ref().filter(|(issued, _)| issued == leaf);
        HeldCertificate::new(leaf, issued.map(|(_, at)| clock::uptime().saturating_sub(*at)))
    }

    /// The floor advances by the time that this process has run.
    fn present(&self) -> KnownTime {
        let counted = clock::uptime().saturating_sub(self.started).as_secs();
        let time_floor = floor([self.current.as_ref().map(|pair| &pair.leaf), None], None);
        let floor = time_floor.saturating_add(Seconds::try_from(counted).unwrap_or_default());
        KnownTime { clock: clock::now().unix_seconds(), floor }
    }

    fn note(&self, fault: Option<String>, present: KnownTime) {
        let leaf = self.current.as_ref().map(|pair| &pair.leaf);
        self.events.note(CertificateEntry {
            not_after: leaf.map(|leaf| leaf.not_after),
            standing: leaf.map(|leaf| self.held_certificate(leaf).standing(present)),
            fault,
            ..CertificateEntry::default()
        });
    }
}
