//! A reflector delivers every change, even if its gate is shut and opened again at any moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::{ADDRESS, ApiServer, NODE};
use super::record::{Lines, Record};
use super::wanted::{Pod, Source as Origin, Traits};
use crate::platform::apiserver::{Change, Client, Collection, Gate, Opening, Rank, reflect};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt;

/// The label `number` of each pod.
type Numbers = BTreeMap<String, String>;

fn number(pod: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"]["number"]))
}

fn take(numbers: &mut Numbers, change: Change) {
    match change {
        Change::Replaced(pods) => *numbers = pods.iter().map(number).collect(),
        Change::Applied(pod) => numbers.extend([number(&pod)]),
        Change::Deleted(pod) => drop(numbers.remove(&number(&pod).0)),
        Change::Away(_) => {}
    }
}

#[test]
fn no_change_is_lost_when_the_gate_is_shut() {
    let kubeconfig = std::env::temp_dir().join(format!("coracle-watches-{}", std::process::id()));
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{ADDRESS}")}}],
        "users": [{"name": "u", "user": {"token": "known"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    for seed in 0..20 {
        let path = kubeconfig.clone();
        let ended = rt::simulate(seed, move |world| async move {
            let api = ApiServer::new(&world, &Record::new(&world, Lines::default()), seed);
            api.start();
            let pods =
                ["a", "b", "c"].map(|name| Pod { name: name.into(), source: Origin::Api, traits: Traits::default() });
            api.change(|server| {
                server.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": "default"}}));
                for pod in &pods {
                    server.create(&pod.object("1"));
                }
            });
            let gate = Gate::new(Opening::Open(Rank::Event), None);
            let client = Client::behind(Rc::clone(&gate), path, Dialer::of_server(ProxySettings::default()));
            let collection = Collection {
                path: "/api/v1/pods".into(),
                field_selector: format!("spec.nodeName={NODE}"),
                bookmarks: true,
                rank: Rank::Intent,
            };
            // The listener is slow, and the channel has room for one change.
            let (sender, changes) = async_channel::bounded(1);
            let _reflector = rt::spawn(reflect(client, collection, sender));
            let heard: Rc<RefCell<Numbers>> = Rc::default();
            let (listener, slow) = (Rc::clone(&heard), Rc::clone(&world));
            let _listener = rt::spawn(async move {
                while let Ok(change) = changes.recv().await {
                    take(&mut listener.borrow_mut(), change);
                    rt::sleep(slow.duration_below(Duration::from_millis(200))).await;
                }
            });
            for round in 0..30 {
                rt::sleep(world.duration_below(Duration::from_secs(3))).await;
                for pod in &pods {
                    let patch = json!({"metadata": {"labels": {"number": round.to_string()}}});
                    api.change(|server| server.patch(&pod.path(), &patch));
                }
                rt::sleep(world.duration_below(Duration::from_millis(300))).await;
                gate.set(Opening::Shut);
                rt::sleep(world.duration_below(Duration::from_millis(100))).await;
                gate.set(Opening::Open(Rank::Event));
            }
            rt::sleep(Duration::from_secs(60)).await;
            let truth: Numbers = api.look(|server| server.list("/api/v1/pods")).iter().map(number).collect();
            let heard = heard.borrow().clone();
            (truth, heard)
        });
        let (truth, heard) = ended.unwrap();
        assert_eq!(heard, truth, "seed {seed}");
    }
    std::fs::remove_file(kubeconfig).unwrap();
}
