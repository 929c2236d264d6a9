//! When images may be pulled: windows, the own budget, and the cluster's.

use std::sync::Arc;

use super::pull_budget::{Hold, Left, hold};
use super::transfer_meter::Meter;
use crate::platform::apiserver::Client;
use crate::platform::config::Config;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::types::time_windows::TimeWindow;

#[derive(Debug)]
pub(crate) struct LinkBudget {
    windows: Vec<TimeWindow>,
    meter: Arc<Meter>,
    /// Images count against the budget of this client.
    cluster: Option<Client>,
}

impl LinkBudget {
    /// `cluster` is `None` without a cluster; then `sync.includesImages` limits images alone.
    pub(crate) fn open(config: &Config, cluster: Option<Client>) -> Self {
        let (fetch, sync) = (&config.images.fetch, &config.cluster.sync);
        let shared = sync.bytes_per_day.filter(|_| sync.includes_images);
        let alone = shared.filter(|_| cluster.is_none());
        let per_day = [fetch.bytes_per_day, alone].into_iter().flatten().min();
        let path = config.root_dir.join("coracle/image-bytes");
        let meter = Arc::new(Meter::open(per_day, fetch.bytes_per_second, path));
        Self { windows: fetch.windows.clone(), meter, cluster: cluster.filter(|_| shared.is_some()) }
    }

    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// Why no pull may begin now.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.hold_of(false)
    }

    /// Why a fetch under way has to stop. Its thread stops by itself where a budget ends.
    pub(crate) fn stop(&self) -> Option<Hold> {
        self.hold_of(true)
    }

    fn hold_of(&self, is_under_way: bool) -> Option<Hold> {
        self.charge();
        let cluster = self.cluster.as_ref().map(|client| {
            let gate = client.gate();
            Left { bytes: gate.left_for_images(), day: gate.day_ends().saturating_sub(clock::uptime()) }
        });
        hold(&self.windows, clock::now().unix_seconds(), self.meter.left(), cluster, is_under_way)
    }

    /// Whether anything but the rate is limited.
    pub(crate) fn is_limited(&self) -> bool {
        !self.windows.is_empty() || self.cluster.is_some() || self.meter.left().is_some()
    }

    /// Bytes used today, and the budget of images alone.
    pub(crate) fn used(&self) -> Option<(u64, u64)> {
        self.meter.used()
    }

    /// Why images of pods that are not urgent are not pulled now.
    pub(crate) fn held(&self) -> Option<String> {
        self.hold().map(|hold| hold.why)
    }

    /// Counts the bytes of a pull by the runtime.
    pub(crate) async fn count(&self, bytes: u64) {
        let meter = self.meter();
        let counted = rt::blocking(move || {
            let taken = meter.take(bytes, true);
            meter.settle();
            taken
        });
        if let Err(error) = counted.await {
            log!(warn, "failed to record image bytes", error = error);
        }
        self.charge();
    }

    /// Counts what was fetched since against the cluster's budget, and asks what is left of that.
    pub(crate) fn charge(&self) {
        let Some(client) = &self.cluster else { return };
        let bytes = self.meter.take_uncharged();
        client.gate().charge(bytes);
        client.traffic().images(bytes);
        self.meter.set_cluster_left(client.gate().left_for_images());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::{Gate, Opening, Rank};
    use crate::platform::net::{Dialer, ProxySettings};

    #[test]
    fn images_stop_within_the_clusters_budget_and_are_charged_to_it() {
        let mut config = Config::default();
        config.cluster.sync.bytes_per_day = Some(1_000_000);
        config.cluster.sync.includes_images = true;
        let gate = Gate::new(Opening::Open(Rank::Event), Some(1_000_000));
        let client = Client::behind(gate, "absent".into(), Dialer::of_server(ProxySettings::default()));
        let budget = LinkBudget::open(&config, Some(client.clone()));
        assert_eq!(budget.hold(), None);
        // Events may use 60 % of the budget.
        assert_eq!(budget.meter().take(500_000, false).unwrap(), 500_000);
        assert_eq!(budget.hold(), None);
        assert_eq!(client.gate().left_for_images(), 100_000);
        assert_eq!(budget.meter().take(500_000, false).unwrap(), 100_000, "no more than is left");
        assert!(budget.hold().is_some_and(|hold| hold.why.contains("sync.bytesPerDay")), "{:?}", budget.hold());
        assert_eq!(client.gate().left_for_images(), 0);
    }
}
