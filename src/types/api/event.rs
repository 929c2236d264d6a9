//! v1.Event. Pure.

use super::metadata::{ObjectMeta, PodUid};
use super::pod::V1;
use super::reason::Reason;
use super::time::Time;

object! {
    pub struct Event {
        @always {
            api_version: V1,
            kind: ObjectKind,
            metadata: ObjectMeta,
            involved_object: ObjectReference,
            reason: Reason,
            message: String,
            source: EventSource,
            first_timestamp: Option<Time>,
            last_timestamp: Option<Time>,
            count: i32,
            event_type: EventKind = "type",
            reporting_component: String,
            reporting_instance: String,
        }
    }
}

object! {
    pub struct ObjectReference {
        kind: ObjectKind,
        namespace: String,
        name: String,
        uid: PodUid,
        api_version: Option<V1>,
        resource_version: String,
        /// A part of the object, such as `spec.containers{main}`.
        field_path: String,
    }
}

object! {
    pub struct EventSource {
        component: String,
        host: String,
    }
}

words! {
    #[derive(Default, Hash)]
    pub enum EventKind {
        #[default]
        Normal = "Normal",
        Warning = "Warning",
    }
}

words! {
    /// The kinds of object that this kubelet writes events about, and `Event` itself.
    #[derive(Default)]
    pub enum ObjectKind {
        #[default]
        Event = "Event",
        CronJob = "CronJob",
        Job = "Job",
        Node = "Node",
        Pod = "Pod",
    }
}
