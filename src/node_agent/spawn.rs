//! Spawns the tasks of the agent.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::drain::Background;
use super::handles::Handles;
use super::open::Agent;
use super::servers::Servers;
use super::sources::artifacts;
use crate::control::local_api::{AgentControl, NodeLocalApi, NodeStats, ProgramFetch, RemoteUpgrades};
use crate::control::server::Pulse;
use crate::control::sync_loop::LoopEnd;
use crate::kubelet::agent_update::UPGRADE_KEY;
use crate::kubelet::api_cache::ApiCache;
use crate::kubelet::enrolment::JoinTask;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::node::{AddressWatch, BoardWatch, keep_iptables_chains};
use crate::kubelet::stats::{self, Stats};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::platform::tracing::Exporter;

/// The running agent.
pub(super) struct SpawnedAgent {
    pub(super) sync_loop: rt::Task<LoopEnd>,
    pub(super) background: Background,
    /// Receives the request for a restart of the agent.
    pub(super) restart: Receiver<()>,
}

impl Agent {
    pub(super) fn spawn(self) -> SpawnedAgent {
        let (sender, restart) = async_channel::bounded(1);
        let join = join_task(&self.handles, sender.clone());
        let control = Rc::new(self.agent_control(sender));
        let remote = Rc::new(self.remote_upgrades(&control));
        let api = self.local_api(&remote);
        let Self {
            handles,
            local,
            profile,
            runtime,
            event_file,
            cluster,
            sources,
            plugins,
            watchdog,
            watchdog_requests: turns,
            sync_loop,
            ..
        } = self;
        let client = cluster.as_ref().map(|cluster| cluster.client.clone());
        let store = cluster.as_ref().map(|cluster| cluster.store.clone());
        let api_cache = cluster.as_ref().and_then(|cluster| cluster.api_cache.clone());
        let profile = profile.known_before(plugins.devices.is_known_node());
        let (streaming, images) = (runtime.streaming(&handles.config.gates), runtime.shared.clone());
        let servers = Servers { local, api: api.clone(), streaming, client: client.clone(), images };
        let records = sync_loop.views().records;
        let sync_loop = rt::spawn(sync_loop.run());
        let mut tasks = vec![rt::spawn(take_turns(turns, handles.health.pulse()))];
        tasks.push(rt::spawn(control.run()));
        tasks.push(rt::spawn(remote.run()));
        tasks.extend(join.map(|join| rt::spawn(join.run())));
        tasks.push(rt::spawn(Rc::clone(&event_file).run()));
        if let Some(settings) = &handles.config.tracing {
            tasks.push(rt::spawn(Exporter::start(settings, &handles.config.node.name).run()));
        }
        tasks.push(rt::spawn(address_watch(&handles, &runtime.pods).run()));
        tasks.push(rt::spawn(board_watch(&handles).run()));
        tasks.extend(servers.spawn(&handles));
        tasks.extend(plugins.spawn(&handles, records, client));
        if let Some(cluster) = cluster {
            if handles.config.process.iptables_chains {
                tasks.push(rt::spawn(keep_iptables_chains()));
            }
            tasks.extend(cluster.spawn(&handles, profile, runtime.image_service, api));
        }
        let stores = store.iter().cloned().chain(api_cache.as_ref().map(ApiCache::store));
        let writers = stores.map(|store| rt::spawn(store.run())).collect();
        tasks.push(rt::spawn(runtime.importer.run()));
        tasks.extend(sources.spawn(&handles));
        SpawnedAgent {
            sync_loop,
            background: Background { tasks, watchdog, event_file, store, api_cache, writers },
            restart,
        }
    }

    /// The API behind the local socket and the other servers.
    fn local_api(&self, remote: &Rc<RemoteUpgrades>) -> Rc<NodeLocalApi> {
        let (handles, runtime) = (&self.handles, &self.runtime.pods);
        let client = self.cluster.as_ref().map(|cluster| cluster.client.clone());
        Rc::new(NodeLocalApi {
            views: self.sync_loop.views(),
            events: Rc::clone(&handles.events),
            errors: handles.errors.clone(),
            followers: handles.followers.clone(),
            dirs: runtime.dirs.clone(),
            config: Rc::clone(&handles.config),
            host_ips: runtime.node.node_ips.clone(),
            processors: self.processors,
            health: handles.health.clone(),
            watchdog: self.watchdog.clone(),
            pulls: runtime.pulls_under_way(),
            pull_budget: runtime.pull_budget(),
            cluster: client,
            store: self.cluster.as_ref().map(|cluster| cluster.store.clone()),
            exchanges: self.cluster.as_ref().map(|cluster| cluster.scheduler.clone()),
            certificates: Rc::clone(&handles.certificates),
            join: Rc::clone(&handles.join_line),
            figures: Rc::new(self.node_stats()),
            devices: Rc::clone(&self.plugins.devices),
            local_pods: self.sources.local.clone(),
            board_key: Arc::clone(&self.sources.node.board_key),
            inbox: handles.inbox.clone(),
            agent: Rc::clone(remote),
            started: self.started,
        })
    }

    fn agent_control(&self, restart: Sender<()>) -> AgentControl {
        let handles = &self.handles;
        AgentControl {
            root_dir: handles.config.root_dir.clone(),
            config_file: handles.config.process.config_file.clone(),
            views: self.sync_loop.views(),
            health: handles.health.clone(),
            status_inputs: Rc::clone(&handles.status_inputs),
            cluster: self.cluster.as_ref().map(|cluster| cluster.client.clone()),
            inbox: handles.inbox.clone(),
            line: RefCell::default(),
            known: RefCell::default(),
            changed: Signal::default(),
            restart,
        }
    }

    fn remote_upgrades(&self, control: &Rc<AgentControl>) -> RemoteUpgrades {
        let (config, dialer) = (&self.handles.config, &self.sources.dialer);
        let key = config.static_pods.url.as_ref().and_then(|url| url.public_key.clone());
        let artifacts = |directory| artifacts(config, directory, dialer, self.runtime.pods.pull_budget());
        RemoteUpgrades {
            control: Rc::clone(control),
            fetch: ProgramFetch {
                dialer: dialer.clone(),
                budget: self.runtime.pods.pull_budget(),
                artifacts: artifacts("coracle/agent/oci"),
                config_artifacts: artifacts("coracle/agent/oci-config"),
                key: key.unwrap_or_else(|| UPGRADE_KEY.into()),
                root_dir: config.root_dir.clone(),
            },
            node_name: config.node.name.clone(),
            followed: RefCell::default(),
        }
    }

    fn node_stats(&self) -> NodeStats {
        let (handles, runtime) = (&self.handles, &self.runtime.pods);
        let sources = stats::Dependencies {
            dirs: runtime.dirs.clone(),
            cri: runtime.cri(),
            images: self.runtime.image_service.clone(),
            csi: Rc::clone(&self.plugins.csi),
        };
        NodeStats {
            views: self.sync_loop.views(),
            events: Rc::clone(&handles.events),
            runtime: Rc::clone(runtime),
            stats: Stats::new(&runtime.node, sources),
            dra: Rc::clone(&self.plugins.dra),
            cluster: self.cluster.as_ref().map(|cluster| cluster.client.clone()),
            store: self.cluster.as_ref().map(|cluster| cluster.store.clone()),
            certificates: Rc::clone(&handles.certificates),
            status_inputs: Rc::clone(&handles.status_inputs),
        }
    }
}

/// `None` without a file that names a cluster to join.
fn join_task(handles: &Handles, restart: Sender<()>) -> Option<JoinTask> {
    let config = &handles.config;
    Some(JoinTask {
        file: config.identity.join_file.clone()?,
        root_dir: config.root_dir.clone(),
        kubeconfig: config.cluster.kubeconfig.clone(),
        line: Rc::clone(&handles.join_line),
        restart,
    })
}

fn address_watch(handles: &Handles, runtime: &PodRuntime) -> AddressWatch {
    AddressWatch {
        host_ips: runtime.node.node_ips.clone(),
        status_inputs: Rc::clone(&handles.status_inputs),
        inbox: handles.inbox.clone(),
    }
}

fn board_watch(handles: &Handles) -> BoardWatch {
    BoardWatch {
        root: "/".into(),
        data: handles.config.root_dir.clone(),
        status_inputs: Rc::clone(&handles.status_inputs),
        inbox: handles.inbox.clone(),
    }
}

/// Answers the watchdog, which shows that tasks other than the sync loop run. Only the watchdog wakes it.
async fn take_turns(requests: Receiver<()>, pulse: Arc<Pulse>) {
    while requests.recv().await.is_ok() {
        pulse.count_other_task();
    }
}
