//! Opens the parts of the agent, in the order of their dependencies.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use async_channel::Receiver;

use super::StartError;
use super::cluster::Cluster;
use super::handles::Handles;
use super::node::Node;
use super::plugins::Plugins;
use super::runtime::Runtime;
use super::sources::PodSources;
use crate::control::jobs::JobTable;
use crate::control::local_api::{Followers, RecentErrors};
use crate::control::pod_sources::merge::Sources;
use crate::control::server::{LocalServer, SyncHealth, Watchdog, readers_group};
use crate::control::sync_loop::{self, SyncLoop, read_stopped_pods};
use crate::control::versions::{Versions, read_held_since};
use crate::kubelet::event_file::EventFile;
use crate::kubelet::node::NodeProfile;
use crate::platform::config::Config;
use crate::platform::host::time_mark::{LATEST_TIME, TimeMark};
use crate::platform::net::ProxySettings;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::pods::{EventRing, SyncEvent};

/// The parts of the agent. Of these, only the watchdog and the event sender are already running.
pub(super) struct Agent {
    pub(super) handles: Handles,
    pub(super) started: Instant,
    pub(super) local: LocalServer,
    pub(super) processors: u32,
    pub(super) profile: NodeProfile,
    pub(super) runtime: Runtime,
    pub(super) event_file: Rc<EventFile>,
    /// `None` without a kubeconfig.
    pub(super) cluster: Option<Cluster>,
    pub(super) sources: PodSources,
    pub(super) plugins: Plugins,
    pub(super) watchdog: Watchdog,
    /// Requests of the watchdog to show that tasks other than the sync loop run.
    pub(super) watchdog_requests: Receiver<()>,
    pub(super) sync_loop: SyncLoop,
}

impl Agent {
    pub(super) async fn open(config: Rc<Config>, proxies: ProxySettings) -> Result<Self, StartError> {
        // Binding comes first: it fails if another agent runs on this node.
        let local =
            LocalServer::bind(&config.process.local_socket, readers_group()).map_err(StartError::LocalSocket)?;
        let started = rt::now();
        let health = SyncHealth::new(config.pods.sync_frequency, started);
        let Node { processors, start_events, settings, profile, managers, groups } = Node::open(&config).await?;
        let (inbox, received) = async_channel::bounded(sync_loop::INBOX_EVENTS);
        for event in start_events {
            // The inbox is still empty.
            let _ = inbox.try_send(SyncEvent::NodeEvent(event));
        }
        // Servers are verified at this time while the clock is behind.
        TimeMark::new(config.root_dir.join(LATEST_TIME)).load().await;
        let cluster = Cluster::open(&config, proxies.clone()).await;
        let client = cluster.as_ref().map(|cluster| cluster.client.clone());
        let runtime = Runtime::open(&config, settings, &inbox, proxies.clone(), client).await;
        if let Some(cluster) = &cluster {
            runtime.pods.set_cluster(&cluster.client);
        }
        let sources = PodSources::open(&config, proxies, runtime.pods.pull_budget())?;
        let stopped_pods = config.root_dir.join("coracle/stopped-pods.json");
        let stopped = {
            let file = stopped_pods.clone();
            rt::blocking(move || read_stopped_pods(&file)).await
        };
        let expected = Sources::new(&sources.names(&config, cluster.is_some())).with_stopped_pods(stopped);
        let directory = config.root_dir.join("coracle/versions");
        let versions = rt::blocking(move || Versions::open(directory)).await;
        let directory = config.root_dir.join("coracle/jobs");
        let jobs = rt::blocking(move || JobTable::open(directory)).await;
        let held_pods = config.root_dir.join("coracle/held-pods.json");
        let held_since = {
            let file = held_pods.clone();
            rt::blocking(move || read_held_since(&file)).await
        };
        let (status_inputs, certificates, join_line) = (Rc::default(), Rc::default(), Rc::default());
        let (errors, followers) = (RecentErrors::default(), Followers::default());
        let events = Rc::new(RefCell::new(cluster.as_ref().map_or_else(EventRing::default, Cluster::event_ring)));
        let noted_events: Rc<Signal> = Rc::default();
        let event_file = EventFile::open(config.root_dir.clone(), Rc::clone(&events), Rc::clone(&noted_events)).await;
        let handles = Handles {
            config,
            inbox,
            health,
            events,
            noted_events,
            errors,
            followers,
            status_inputs,
            certificates,
            join_line,
        };
        let (turn, turns) = async_channel::bounded(1);
        let watchdog = Watchdog::start(&handles.config, handles.health.pulse(), handles.inbox.clone(), turn);
        let plugins = Plugins::open(&handles, cluster.as_ref(), &managers).await;
        let dependencies = sync_loop::Dependencies {
            runtime: Rc::clone(&runtime.pods),
            groups,
            managers,
            devices: Rc::clone(&plugins.devices),
            csi: Rc::clone(&plugins.csi),
            dra: Rc::clone(&plugins.dra),
            sources: expected,
            stopped_pods,
            jobs,
            versions,
            held_since: (held_pods, held_since),
            errors: handles.errors.clone(),
            followers: handles.followers.clone(),
            health: handles.health.clone(),
            sender: handles.inbox.clone(),
            inbox: received,
        };
        let sync_loop = handles.connect(SyncLoop::new(&handles.config, dependencies), cluster.as_ref());
        Ok(Self {
            handles,
            started,
            local,
            processors,
            profile,
            runtime,
            event_file: Rc::new(event_file),
            cluster,
            sources,
            plugins,
            watchdog,
            watchdog_requests: turns,
            sync_loop,
        })
    }
}

impl Handles {
    /// Connects the sync loop to the node status and, if there is one, to the cluster.
    fn connect(&self, sync_loop: SyncLoop, cluster: Option<&Cluster>) -> SyncLoop {
        let sync_loop = sync_loop.with_status_inputs(Rc::clone(&self.status_inputs));
        let events = Rc::clone(&self.events);
        let Some(cluster) = cluster else { return sync_loop.with_events(events, None) };
        let event_sender = cluster.event_sender(self);
        let sync_loop = sync_loop.in_cluster(&cluster.client, &cluster.store, &self.config.node.name);
        sync_loop.with_events(events, Some(event_sender))
    }
}
