//! The life of a pod called `web`, from its manifest to its removal, and the calls of the agent in it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use super::node::{BUSYBOX, Manifest, Node, Seen};
use crate::fake_cri::Call;

/// A moment in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The manifest is created.
    Start,
    /// A container has exited.
    Restart,
    /// A container has exited for the second time, and the first dead instance is removed.
    SecondRestart,
    /// The connection to the runtime breaks, and the agent relists.
    Reconnect,
    /// A restarted agent finds the pod running.
    Adoption,
    /// The manifest is removed.
    Removal,
}

/// A call that the agent makes at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) moment: Moment,
    pub(crate) call: &'static str,
    /// Number of calls of this kind before the one meant.
    pub(crate) skip: u32,
}

/// Runs each case on a node of its own. The cases mostly wait, so many run in parallel.
#[track_caller]
pub(crate) fn in_each(cases: impl Iterator<Item = Case> + Send, meet: impl Fn(Case) + Sync) {
    // The kernel gives a user 128 inotify instances. Each agent has two or three, and several tests run at once.
    const BESIDE_EACH_OTHER: usize = 8;
    let cases = Mutex::new(cases);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..BESIDE_EACH_OTHER {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().unwrap().next() else { return };
                    if catch_unwind(AssertUnwindSafe(|| meet(case))).is_err() {
                        failed.lock().unwrap().push(case);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}

impl Moment {
    /// Brings the node to just before the moment. A pod called `other` runs there too.
    pub(crate) fn prepare(self, node: &mut Node) {
        node.fake.publish_image(APP);
        node.apply(&Manifest::new("other").container("main", ""));
        node.start_agent();
        node.wait_until_ready("other");
        if self == Self::Start {
            return;
        }
        write_web(node);
        node.wait_until_ready("web");
        if self == Self::SecondRestart {
            node.fake.exit("web-node-a/main", 1);
            node.wait_until("the container runs again", |pods| {
                pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
            });
        }
        if self == Self::Adoption {
            node.kill_agent();
        }
    }

    pub(crate) fn happens(self, node: &mut Node) {
        match self {
            Self::Start => write_web(node),
            Self::Restart | Self::SecondRestart => node.fake.exit("web-node-a/main", 1),
            Self::Reconnect => node.fake.cut_connections(),
            Self::Adoption => node.start_agent(),
            Self::Removal => node.remove_manifest("web"),
        }
    }

    /// Waits until the pod has reached its target state, with nothing duplicated and nothing left over.
    #[track_caller]
    pub(crate) fn is_over(self, node: &Node) {
        if self == Self::Removal {
            node.fake.wait_for("the pod to go", |world| Seen::of(world, "web").sandboxes.is_empty());
            return;
        }
        let restarts = match self {
            Self::Restart => 1,
            Self::SecondRestart => 2,
            Self::Start | Self::Reconnect | Self::Adoption | Self::Removal => 0,
        };
        // The agent keeps the newest dead instance.
        let ended = usize::from(restarts > 0);
        node.fake.wait_for("the pod to run", |world| is_right(world, restarts, ended));
        node.wait_until("the pod is ready", |pods| {
            pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == u64::from(restarts))
        });
        let web = node.seen("web");
        assert!(node.fake.look(|world| is_right(world, restarts, ended)), "{web:#?}");
    }
}

fn is_right(world: &crate::fake_cri::World, restarts: u32, ended: usize) -> bool {
    let web = Seen::of(world, "web");
    let running = [("main", restarts), ("side", 0)];
    web.is_exactly(&running) && web.containers.len() == running.len() + ended
}

/// The pod's UID in its manifest.
pub(crate) const UID: &str = "3b0c9b0e-0000-4000-8000-00000000web0";
const APP: &str = "registry.example/app:1";

fn write_web(node: &Node) {
    let web = Manifest::new("web").container("main", "").container("side", "");
    let web = web.spec("terminationGracePeriodSeconds: 1");
    let text = web.text().replace(BUSYBOX, APP).replace("name: web}", &format!("name: web, uid: {UID}}}"));
    node.write_manifest("web", &text);
}

impl Case {
    /// Waits for the call of this case, after `before` earlier calls.
    #[track_caller]
    pub(crate) fn wait_for_call(self, node: &Node, before: usize) {
        node.fake.wait_for_calls(self.call, before + 1 + usize::try_from(self.skip).unwrap());
    }
}

/// Asserts that the agent listed the containers before repeating an identical call.
#[track_caller]
pub(crate) fn check_repeated(calls: &[Call]) {
    for (place, call) in calls.iter().enumerate() {
        if !["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer"].contains(&&*call.method) {
            continue;
        }
        let later = &calls[place + 1..];
        let again = later.iter().position(|other| other.method == call.method && other.request == call.request);
        let Some(again) = again else { continue };
        let looked = later[..again].iter().any(|other| other.method == "ListContainers");
        assert!(looked, "{call:?} was repeated without a look: {calls:?}");
    }
}
