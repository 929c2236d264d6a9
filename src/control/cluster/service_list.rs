//! The Services of a namespace: a change reads one of them, not all.

use crate::control::cluster::topic_content::name_of;
use crate::kubelet::offline::{OfflineStore, used_part};
use crate::platform::apiserver::Change;
use crate::platform::rt::{self, TurnWork};
use crate::state::objects::{Content, ObjectEvent, Service, Topic};
use crate::types::api::ObjectText;
use crate::types::sorted::SortedMap;

/// Each Service as variables need it, unless it is malformed, and as it is stored.
#[derive(Debug, Default)]
pub(super) struct ServiceList {
    services: SortedMap<String, (Option<Service>, ObjectText)>,
}

/// Bytes of Services that are read in a turn.
const BYTES_OF_SERVICES_OF_A_TURN: usize = 64 << 10;

impl ServiceList {
    pub(super) async fn on_change(&mut self, change: Change) {
        match change {
            Change::Replaced(objects) => {
                let mut read = Vec::new();
                let mut turn = TurnWork::new(BYTES_OF_SERVICES_OF_A_TURN);
                for object in objects {
                    read.push(named(&object));
                    if turn.ends_with(object.as_str().len()) {
                        rt::yield_now().await;
                    }
                }
                self.services = read.into_iter().collect();
            }
            Change::Applied(object) => {
                let (name, service) = named(&object);
                self.services.insert(name, service);
            }
            Change::Deleted(object) => drop(self.services.remove(&name_of(&object))),
            Change::Away(_) => {}
        }
    }

    /// Stores all Services, and returns their event.
    pub(super) fn event(&self, topic: &Topic, store: &OfflineStore) -> ObjectEvent {
        store.remember(topic, ObjectText::list(self.services.values().map(|(_, stored)| stored)));
        let services = self.services.values().filter_map(|(service, _)| service.clone()).collect();
        ObjectEvent::Received(topic.clone(), Some(Content::Services(services)))
    }
}

fn named(object: &ObjectText) -> (String, (Option<Service>, ObjectText)) {
    let service = object.value().ok().and_then(|service| Service::read(&service));
    (name_of(object), (service, used_part(object)))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use serde_json::json;

    use super::*;

    fn service(number: usize) -> ObjectText {
        let ports: Vec<_> = (1..40).map(|port| json!({"port": port, "protocol": "TCP"})).collect();
        let metadata = json!({"namespace": "ns", "name": format!("s{number}")});
        ObjectText::of(&json!({"metadata": metadata, "spec": {"clusterIP": "10.0.0.1", "ports": ports}}))
    }

    fn services(count: usize) -> Change {
        Change::Replaced((0..count).map(service).collect())
    }

    /// The turns in which a change is read.
    fn turns(list: &mut ServiceList, change: Change) -> usize {
        let mut reading = pin!(list.on_change(change));
        let mut turns = 1;
        while reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            turns += 1;
        }
        turns
    }

    #[test]
    fn thousands_of_services_are_read_in_several_turns() {
        let mut list = ServiceList::default();
        assert_eq!(turns(&mut list, services(10)), 1);
        let bytes: usize = (0..1000).map(|number| service(number).as_str().len()).sum();
        let least = bytes / BYTES_OF_SERVICES_OF_A_TURN;
        assert!((least..=least + 1).contains(&turns(&mut list, services(1000))), "{least}");
    }

    #[test]
    fn change_of_one_service_takes_a_fraction_of_the_time_for_all() {
        let mut list = ServiceList::default();
        let mut time = |change| {
            let begun = rt::processor_time();
            turns(&mut list, change);
            rt::processor_time() - begun
        };
        let all = time(services(1000));
        let one = (0..5).map(|_| time(Change::Applied(service(500)))).min().unwrap();
        assert!(one < all / 50, "{one:?} of {all:?}");
    }

    #[test]
    fn changes_replace_and_remove_services() {
        let mut list = ServiceList::default();
        turns(&mut list, services(3));
        turns(&mut list, Change::Deleted(service(1)));
        turns(&mut list, Change::Applied(ObjectText::of(&json!({"metadata": {"name": "s2"}}))));
        let known = list.services.iter().map(|(name, (service, _))| (name.as_str(), service.is_some()));
        assert_eq!(known.collect::<Vec<_>>(), [("s0", true), ("s2", false)], "s2 is malformed");
    }
}
