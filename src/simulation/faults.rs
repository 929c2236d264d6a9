//! The faults of a plan: of the API server, the network, the runtime, the disk, the clock and the plugins.

use std::rc::Rc;
use std::time::Duration;

use super::agent::QUICK_DISK_TIME;
use super::fake_api::store::Store;
use super::life::Node;
use super::machine::Machine;
use super::plan::{PluginKind, StepKind};
use super::wanted::Source;
use super::{api_server, container_runtime, plugin};
use crate::platform::rt::{self, Line, Resolver};

/// Minimum number of resource versions that a restore takes back.
const MIN_HISTORY_VERSIONS: u64 = 30;

impl Node {
    pub(super) fn take_fault(&mut self, kind: &StepKind) {
        let api = Rc::clone(&self.api);
        let runtime = Rc::clone(&self.runtime);
        match kind {
            StepKind::ApiGone { lasts } => {
                self.record.count("API server gone");
                api.stop();
                self.later(*lasts, move || api.start());
            }
            StepKind::ApiSilent { lasts } => {
                self.record.count("API server behind a black hole");
                api.set_line(Line::BlackHole);
                self.later(*lasts, move || api.set_line(Line::Up));
            }
            StepKind::ApiFails { faults, lasts } => {
                api.faults.set(*faults);
                self.later(*lasts, move || api.faults.set(api_server::Faults::default()));
            }
            StepKind::ApiCut => api.cut(),
            StepKind::ApiDelay { delay, lasts } => {
                api.set_delay(*delay);
                self.later(*lasts, move || api.set_delay(Duration::from_micros(200)));
            }
            StepKind::EndWatches => api.end_watches(),
            StepKind::Compact => {
                api.change(|server| server.compact());
                api.end_watches();
            }
            StepKind::Restore => self.restore(),
            StepKind::FullDisk { lasts } => {
                self.record.count("full disks");
                self.machine.fill_disk();
                let disk = self.machine.disk.clone();
                self.later(*lasts, move || Machine::free_disk(&disk));
            }
            StepKind::RuntimeGone { lasts } => {
                self.record.count("runtime gone");
                runtime.stop();
                self.later(*lasts, move || runtime.start());
            }
            StepKind::RuntimeSilent { lasts } => {
                self.record.count("runtime silent");
                runtime.set_line(Line::BlackHole);
                self.later(*lasts, move || runtime.set_line(Line::Up));
            }
            StepKind::RuntimeFails { faults, lasts } => {
                runtime.set_faults(*faults);
                self.later(*lasts, move || runtime.set_faults(container_runtime::Faults::default()));
            }
            StepKind::ClockSteps(seconds) => {
                self.record.count("steps of the wall clock");
                self.runtime.jobs.borrow_mut().clock_steps(self.world.wall_clock(), self.world.passed());
                self.world.step_wall_clock(*seconds);
            }
            StepKind::SlowDisk { longest, lasts } => {
                self.world.disk.set(*longest);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.disk.set(QUICK_DISK_TIME));
            }
            StepKind::SlowMachine { longest, lasts } => {
                self.record.count("slow machines");
                self.world.longest_turn.set(*longest);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.longest_turn.set(Duration::ZERO));
            }
            StepKind::DiskFails { rate, lasts } => {
                self.record.count("disks that failed");
                self.world.files.failing.set(*rate);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.files.failing.set(0));
            }
            StepKind::NamesFail { resolver, lasts } => {
                self.record.count("name servers that failed");
                self.world.network.resolver.set(*resolver);
                let world = Rc::clone(&self.world);
                self.later(*lasts, move || world.network.resolver.set(Resolver::default()));
            }
            StepKind::PluginGone { which, lasts } => {
                self.record.count("plugins that died");
                let (csi, cameras, dra) = (Rc::clone(&self.csi), Rc::clone(&self.cameras), Rc::clone(&self.dra));
                match which {
                    PluginKind::Csi => {
                        csi.stop();
                        self.later(*lasts, move || csi.start());
                    }
                    PluginKind::Device => {
                        cameras.stop();
                        self.later(*lasts, move || cameras.start());
                    }
                    PluginKind::Dra => {
                        dra.stop();
                        self.later(*lasts, move || dra.start());
                    }
                }
            }
            StepKind::PluginFails { which, faults, lasts } => {
                self.set_plugin_faults(*which, *faults);
                let (csi, cameras, dra) = (Rc::clone(&self.csi), Rc::clone(&self.cameras), Rc::clone(&self.dra));
                let (none, which) = (plugin::Faults::default(), *which);
                self.later(*lasts, move || match which {
                    PluginKind::Csi => csi.faults.set(none),
                    PluginKind::Device => cameras.faults.set(none),
                    PluginKind::Dra => dra.faults.set(none),
                });
            }
            _ => unreachable!("it is no fault: {kind:?}"),
        }
    }

    /// Restores the API server from the backup: pods deleted since come back, pods created since disappear.
    fn restore(&mut self) {
        // If the new history overtakes the old one before the agent's next request, no client can distinguish them.
        let grown = |store: &Store| self.api.look(|server| server.version()) >= store.version() + MIN_HISTORY_VERSIONS;
        if !self.backup.as_ref().is_some_and(|(store, _)| grown(store)) {
            return;
        }
        let Some((store, pods)) = self.backup.take() else { return };
        self.record.count("API servers restored from a backup");
        self.api.stop();
        self.api.change(|server| server.restore(&store));
        self.api.verdicts.forget();
        let mut wanted = self.wanted.borrow_mut();
        // A pod that came back with an earlier restore may have ended since this backup.
        let may_end = |revision: &&String| !wanted.pods.contains_key(*revision) || wanted.back.contains(*revision);
        let back = pods.keys().filter(may_end).cloned().collect();
        wanted.back = back;
        wanted.pods.retain(|_, pod| pod.source != Source::Api);
        for (revision, pod) in pods {
            if pod.traits.job {
                // Whether it ran is unknown.
                self.api.change(|server| server.delete(&pod.path(), Some(0)));
            } else {
                wanted.pods.insert(revision, pod);
            }
        }
        drop(wanted);
        let api = Rc::clone(&self.api);
        self.later(Duration::from_secs(10), move || api.start());
    }

    pub(super) fn later(&mut self, after: Duration, end: impl FnOnce() + 'static) {
        self.pending.push(rt::spawn(async move {
            rt::sleep(after).await;
            end();
        }));
    }

    pub(super) fn start_plugin(&self, plugin: PluginKind) {
        match plugin {
            PluginKind::Csi => self.csi.start(),
            PluginKind::Device => self.cameras.start(),
            PluginKind::Dra => self.dra.start(),
        }
    }

    pub(super) fn set_plugin_faults(&self, plugin: PluginKind, faults: plugin::Faults) {
        match plugin {
            PluginKind::Csi => self.csi.faults.set(faults),
            PluginKind::Device => self.cameras.faults.set(faults),
            PluginKind::Dra => self.dra.faults.set(faults),
        }
    }
}
