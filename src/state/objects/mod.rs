//! The objects that pods refer to: ConfigMaps, Secrets, services, volumes and others. Pure.
//!
//! Sources fill it; volumes and environments are built from it. What a pod has taken from an object stays, even if
//! the object changes or is deleted.

mod attachment;
mod claim_expansion;
mod config_object;
mod csi_driver;
mod manifest_service;
mod node_claim;
mod object_event;
mod persistent_volume;
mod pod_topics;
mod references;
mod required_objects;
mod resource_claim;
mod service;
mod trust_bundle;

use std::sync::Arc;

use crate::types::api::{ClusterTrustBundleProjection, Map, Pod, PodUid, Time, Volume, VolumeSource};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

pub(crate) use attachment::{Attachment, NotAttached, attachment_name, is_out_of_room, unique_name};
pub(crate) use claim_expansion::{
    ExpansionDue, Target, begun_patch, capacity, done_patch, failed_patch, growth_due, size_in_bytes,
};
pub(crate) use config_object::{ConfigObject, Content as FileContent, ObjectKey, ObjectKind};
pub(crate) use csi_driver::{CsiDriver, FsGroupPolicy};
pub(crate) use node_claim::{WritableClaim, claim_directory, claim_limit, writable_claims};
pub(crate) use object_event::{Content, ObjectEvent};
pub(crate) use persistent_volume::{
    CsiSource, PersistentSource, PersistentVolume, VOLUME_ANNOTATIONS, bound_volume, is_bound_to, is_controlled_by,
};
pub(crate) use pod_topics::PodTopics;
pub(crate) use references::{references, volumes_follow};
use required_objects::TopicStates;
pub(crate) use required_objects::{
    BundleKey, ClaimOwner, Lookup, MAX_POD_CERTIFICATES, MAX_POD_TOKENS, PodCertificateKey, TokenKey, Topic,
};
pub(crate) use resource_claim::{
    AllocatedFile, ClaimNotCreated, ClaimRefusal, DEVICE_FILES_DRIVER, ResourceClaim, ResourceClaimKey,
    claimed_resources, extended_requests, is_backed_by_claim, pod_claims,
};
pub(crate) use service::Service;
#[cfg(test)]
pub(crate) use service::ServicePort;
pub(crate) use trust_bundle::TrustBundle;

/// An object and its source.
#[derive(Clone, Debug)]
pub(crate) struct SourceObject {
    pub(crate) object: Arc<ConfigObject>,
    /// The manifest that defines it.
    pub(crate) origin: Arc<str>,
    /// When it was first read.
    pub(crate) since: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// From manifests, for pods from manifests.
    objects: SortedMap<ObjectKey, SourceObject>,
    /// From an API server, for its pods.
    topics: TopicStates<Content>,
    pod_topics: PodTopics,
    /// Volumes that the attach/detach controller has attached to this node, by their names in the node status.
    attached: Vec<String>,
    /// Labels of the Node object; `None` until it was read.
    node_labels: Option<Map<String>>,
}

/// What follows from the answer for a topic.
#[derive(Debug)]
pub(crate) struct AnswerEffect {
    pub(crate) topic: Arc<Topic>,
    /// The number of topics of pods to which the answer may have added some.
    pub(crate) stale_topics: usize,
}

/// The result of [`Objects::set_pods`].
#[derive(Debug)]
pub(crate) struct PodsChange {
    pub(crate) has_changed: bool,
    /// Topics that are looked up once, of which no former user is left. Their answers are forgotten: another pod may
    /// need them again, and a claim may be bound to another volume by then.
    pub(crate) outdated: Vec<Arc<Topic>>,
}

/// The result of replacing the objects.
#[derive(Debug, Default)]
pub(crate) struct ObjectChanges {
    /// Keys of new, changed and removed objects.
    pub(crate) keys: SortedSet<ObjectKey>,
    /// Objects that are ignored, and why.
    pub(crate) refused: Vec<(SourceObject, String)>,
}

impl Objects {
    /// An object that a pod refers to. A static pod gets the objects of manifests, a pod of the cluster those of the
    /// cluster.
    pub(crate) fn get(&self, pod: &Pod, kind: ObjectKind, name: &str) -> Lookup<&ConfigObject> {
        let key = ObjectKey { kind, namespace: pod.metadata.namespace.clone(), name: name.to_owned() };
        if pod.is_of_cluster() {
            return match self.topics.get(&Topic::Object(key)) {
                Lookup::Found(Content::Object(object)) => Lookup::Found(object),
                Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
                Lookup::Unknown(why) => Lookup::Unknown(why),
            };
        }
        self.objects.get(&key).map_or(Lookup::Missing, |object| Lookup::Found(&*object.object))
    }

    /// A Secret of the cluster that a volume refers to.
    pub(crate) fn secret(&self, key: &ObjectKey) -> Lookup<&ConfigObject> {
        match self.topics.get(&Topic::Object(key.clone())) {
            Lookup::Found(Content::Object(object)) => Lookup::Found(object),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    pub(crate) fn csi_driver(&self, name: &str) -> Lookup<&CsiDriver> {
        match self.topics.get(&Topic::CsiDriver(name.to_owned())) {
            Lookup::Found(Content::CsiDriver(driver)) => Lookup::Found(driver),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// The known services for the pod's environment variables.
    pub(crate) fn services(&self, pod: &Pod) -> impl Iterator<Item = &Service> {
        let topics = [Topic::ApiServerService, Topic::Services(pod.metadata.namespace.clone())];
        let lists = topics.into_iter().filter_map(|topic| match self.topics.get(&topic) {
            Lookup::Found(Content::Services(services)) => Some(services),
            _ => None,
        });
        lists.flatten()
    }

    /// The Services of manifests.
    pub(crate) fn manifest_services(&self) -> impl Iterator<Item = &ConfigObject> {
        self.objects.values().map(|source| &*source.object).filter(|object| object.service.is_some())
    }

    /// The volume bound to a claim.
    pub(crate) fn claimed(&self, claim: &Topic) -> Lookup<&PersistentVolume> {
        match self.topics.get(claim) {
            Lookup::Found(Content::Volume(volume)) => Lookup::Found(volume),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// The known ResourceClaims of all pods.
    pub(crate) fn resource_claims(&self) -> impl Iterator<Item = (&ResourceClaimKey, &ResourceClaim)> {
        self.topics.values().filter_map(|(topic, content)| match (topic, content) {
            (Topic::ResourceClaim(key), Content::ResourceClaim(claim)) => Some((key, claim)),
            _ => None,
        })
    }

    /// A ResourceClaim that a pod uses.
    pub(crate) fn resource_claim(&self, key: &ResourceClaimKey) -> Lookup<&ResourceClaim> {
        match self.topics.get(&Topic::ResourceClaim(key.clone())) {
            Lookup::Found(Content::ResourceClaim(claim)) => Lookup::Found(claim),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// True if the list changed.
    pub(crate) fn set_attached(&mut self, attached: Vec<String>) -> bool {
        let is_news = self.attached != attached;
        self.attached = attached;
        if is_news {
            // What is attached adds its VolumeAttachment to the topics of its pods.
            self.pod_topics.mark_all_stale();
        }
        is_news
    }

    pub(crate) fn set_node_labels(&mut self, labels: Map<String>) {
        self.node_labels = Some(labels);
    }

    /// Whether the volume may be mounted on this node, as far as the node's labels are known.
    pub(crate) fn is_on_its_node(&self, volume: &PersistentVolume) -> bool {
        let (Some(labels), Some(affinity)) = (&self.node_labels, &volume.node_affinity) else { return true };
        // As upstream, which knows no fields here.
        affinity.selects("", labels)
    }

    pub(crate) fn is_attached(&self, source: &CsiSource) -> bool {
        self.attached.contains(&unique_name(&source.driver, &source.handle))
    }

    /// The attachment of a volume to the pod's node.
    pub(crate) fn attachment(&self, pod: &Pod, source: &CsiSource) -> Lookup<&Attachment> {
        match self.topics.get(&Topic::attachment(pod, source)) {
            Lookup::Found(Content::Attachment(attachment)) => Lookup::Found(attachment),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// The pod's CSI volumes as far as they are known: the driver, and the source if the volume is bound to a claim.
    fn csi_volumes<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = (&'a str, Option<&'a CsiSource>)> {
        pod.spec.volumes.iter().filter_map(move |volume| match &volume.source {
            VolumeSource::Csi(source) => Some((source.driver.as_str(), None)),
            _ => self.claimed_of_driver(pod, volume).map(|source| (source.driver.as_str(), Some(source))),
        })
    }

    /// The CSI source of the volume bound to this volume's claim.
    pub(crate) fn claimed_of_driver(&self, pod: &Pod, volume: &Volume) -> Option<&CsiSource> {
        match self.claimed(&Topic::claim(pod, volume)?) {
            Lookup::Found(PersistentVolume { source: PersistentSource::Csi(source), .. }) => Some(source),
            _ => None,
        }
    }

    /// The known volumes of the pod that must be attached.
    pub(crate) fn attachable<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = String> + use<'a> {
        self.csi_volumes(pod).filter_map(move |(driver, source)| {
            let is_attached_first = match self.csi_driver(driver) {
                Lookup::Found(driver) => driver.attach_required,
                // As upstream: only a CSIDriver object can say that its volumes are not attached.
                Lookup::Missing => true,
                Lookup::Unknown(_) => false,
            };
            source.filter(|_| is_attached_first).map(|source| unique_name(driver, &source.handle))
        })
    }

    /// Whether a driver of the pod's volumes has `requiresRepublish`.
    pub(crate) fn is_republished(&self, pod: &Pod) -> bool {
        self.csi_volumes(pod).any(|(driver, _)| match self.csi_driver(driver) {
            Lookup::Found(driver) => driver.requires_republish,
            Lookup::Missing | Lookup::Unknown(_) => false,
        })
    }

    /// What the pod needs before its containers can be created, as far as it is known: bound volumes and their
    /// drivers may add more.
    pub(crate) fn topics(&self, pod: &Pod) -> SortedSet<Topic> {
        let mut topics = Topic::of(pod);
        let mut drivers = Vec::new();
        let mut more = Vec::new();
        for (driver, source) in self.csi_volumes(pod) {
            drivers.push(driver);
            let Some(source) = source else { continue };
            // As upstream, which looks for the VolumeAttachment once the node's status has the volume.
            if self.is_attached(source) {
                more.push(Topic::attachment(pod, source));
            }
            let secrets = [&source.stage_secret, &source.publish_secret];
            more.extend(secrets.into_iter().flatten().cloned().map(Topic::Object));
        }
        drivers.sort_once();
        drivers.dedup();
        for driver in drivers {
            if let Lookup::Found(driver) = self.csi_driver(driver) {
                more.extend(driver.token_requests.iter().map(|of| Topic::Token(TokenKey::for_driver(pod, of))));
            }
            more.push(Topic::CsiDriver(driver.to_owned()));
        }
        topics.extend(more);
        topics
    }

    /// The handler of a RuntimeClass in the cluster.
    pub(crate) fn runtime_handler(&self, class: &str) -> Lookup<&str> {
        match self.topics.get(&Topic::RuntimeClass(class.to_owned())) {
            Lookup::Found(Content::RuntimeHandler(handler)) => Lookup::Found(handler),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    pub(crate) fn token(&self, key: TokenKey) -> Lookup<&str> {
        let is_complete = self.pod_topics.is_complete(&key.pod) == Some(true);
        let topic = Topic::Token(key);
        match (self.topics.get(&topic), &topic) {
            (Lookup::Found(Content::Token { text, .. }), _) => Lookup::Found(text),
            (Lookup::Found(_) | Lookup::Missing, _) => Lookup::Missing,
            (Lookup::Unknown(_), Topic::Token(key)) if is_complete && self.topics.is_pending(&topic) => {
                let TokenKey { audience, seconds, .. } = key;
                Lookup::Unknown(format!(
                    "audience \"{audience}\" with expirationSeconds {seconds} is not among the first {MAX_POD_TOKENS} \
                     different tokens of the pod, the most that a pod gets"
                ))
            }
            (Lookup::Unknown(why), _) => Lookup::Unknown(why),
        }
    }

    /// The key and the certificate chain of a projection, in PEM.
    pub(crate) fn certificate(&self, key: PodCertificateKey) -> Lookup<(&str, &str)> {
        let topic = Topic::PodCertificate(Box::new(key));
        match self.topics.get(&topic) {
            Lookup::Found(Content::Certificate { key, chain }) => Lookup::Found((key, chain)),
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(_) if self.topics.is_pending(&topic) => {
                Lookup::Unknown(format!("not requested yet, or not among the first {MAX_POD_CERTIFICATES} of the pod"))
            }
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// Expiry of a token, in seconds since 1970.
    pub(crate) fn token_end(&self, key: TokenKey) -> i64 {
        match self.topics.get(&Topic::Token(key)) {
            Lookup::Found(Content::Token { expires, .. }) => *expires,
            _ => 0,
        }
    }

    /// The trust anchors of a projection, in PEM.
    pub(crate) fn trust_anchors(&self, projection: &ClusterTrustBundleProjection) -> Lookup<String> {
        let Some(key) = BundleKey::of(projection) else { return Lookup::Missing };
        let is_named = matches!(key, BundleKey::Named(_));
        match self.topics.get(&Topic::TrustBundles(key)) {
            Lookup::Found(Content::TrustBundles(bundles)) => {
                let selector = projection.label_selector.as_deref();
                // Without a selector none of a signer's bundles match, with an empty one all do.
                let is_meant =
                    |bundle: &&TrustBundle| is_named || selector.is_some_and(|selector| bundle.is_in(selector));
                let meant: Vec<&TrustBundle> = bundles.iter().filter(is_meant).collect();
                if meant.is_empty() { Lookup::Missing } else { Lookup::Found(trust_bundle::anchors(&meant)) }
            }
            Lookup::Found(_) | Lookup::Missing => Lookup::Missing,
            Lookup::Unknown(why) => Lookup::Unknown(why),
        }
    }

    /// Whether there is an answer for everything that the pod needs.
    pub(crate) fn are_known(&self, pod: &Pod) -> bool {
        if !pod.is_of_cluster() {
            return true;
        }
        let all_answered = || self.topics(pod).iter().all(|topic| !self.topics.is_pending(topic));
        self.pod_topics.is_complete(&pod.metadata.uid).unwrap_or_else(all_answered)
    }

    /// Determines what these pods need, if they have changed, and forgets all other pods.
    pub(crate) fn set_pods(&mut self, pods: &[Arc<Pod>]) -> PodsChange {
        let uids: SortedSet<&PodUid> = pods.iter().map(|pod| &pod.metadata.uid).collect();
        let unused = self.pod_topics.retain(|uid| uids.contains(uid));
        let mut has_changed = unused.is_some();
        let mut outdated = unused.unwrap_or_default();
        // The others change by themselves when their objects do.
        outdated.retain(|topic| matches!(**topic, Topic::Attachment(_) | Topic::Claim { .. }));
        for topic in &outdated {
            self.topics.forget(topic);
        }
        for pod in pods {
            if !self.pod_topics.is_current(pod) {
                let topics = self.topics(pod);
                self.pod_topics.set(pod, topics, |topic| !self.topics.is_pending(topic));
                has_changed = true;
            }
        }
        PodsChange { has_changed, outdated }
    }

    /// What all pods need.
    pub(crate) fn pod_topics(&self) -> &PodTopics {
        &self.pod_topics
    }

    /// Whether there is an answer for everything that any pod needs.
    pub(crate) fn all_are_known(&self) -> bool {
        self.pod_topics.all_complete()
    }

    /// Stores the answer for a topic. Returns what follows from it; `None` if it changes nothing.
    pub(crate) fn on_event(&mut self, event: ObjectEvent) -> Option<AnswerEffect> {
        let (ObjectEvent::Received(topic, _) | ObjectEvent::Failed(topic, _)) = &event;
        let topic = self.pod_topics.shared(topic);
        if self.topics.is_pending(&topic) {
            self.pod_topics.on_first_response(&topic);
        }
        let has_changed = match event {
            ObjectEvent::Received(_, content) => self.topics.set(Arc::clone(&topic), content),
            ObjectEvent::Failed(_, why) => self.topics.fail(Arc::clone(&topic), why),
        };
        if !has_changed {
            return None;
        }
        // A claim or a driver may refer to further objects.
        let stale_topics = match *topic {
            Topic::Claim { .. } | Topic::CsiDriver(_) => self.pod_topics.mark_stale(&topic),
            _ => 0,
        };
        Some(AnswerEffect { stale_topics, topic })
    }

    /// The pods that need a topic, and that have answers for everything they need.
    pub(crate) fn complete_users(&self, topic: &Topic) -> Vec<PodUid> {
        self.pod_topics.complete_users(topic)
    }

    pub(crate) fn forget(&mut self, topic: &Topic) {
        self.topics.forget(topic);
    }

    /// Replaces all manifest objects. Of two with the same name, the one already in use wins, else the first. An
    /// immutable object stays unchanged until it is removed.
    pub(crate) fn replace(&mut self, objects: &[SourceObject]) -> ObjectChanges {
        let mut changes = ObjectChanges::default();
        let mut next: SortedMap<ObjectKey, SourceObject> = SortedMap::new();
        let counted =
            |new: &&SourceObject| self.objects.get(&new.object.key).is_some_and(|old| old.origin == new.origin);
        let (old, new): (Vec<_>, Vec<_>) = objects.iter().partition(counted);
        for object in old.into_iter().chain(new) {
            let key = &object.object.key;
            match next.get(key) {
                None => drop(next.insert(key.clone(), object.clone())),
                // Pods that share an object may each bring an equal copy.
                Some(other) if *other.object == *object.object => {}
                Some(other) => {
                    let why = format!("{key} is ignored: already defined in {}", other.origin);
                    changes.refused.push((object.clone(), why));
                }
            }
        }
        for (key, new) in &mut next {
            match self.objects.get(key) {
                Some(old) if *old.object == *new.object => new.object = Arc::clone(&old.object),
                Some(old) if old.object.immutable => {
                    changes.refused.push((new.clone(), format!("{key} is immutable, keeping the previous version")));
                    *new = old.clone();
                }
                Some(_) | None => drop(changes.keys.insert(key.clone())),
            }
        }
        changes.keys.extend(self.objects.keys().filter(|key| !next.contains_key(key)).cloned());
        self.objects = next;
        changes
    }
}

#[cfg(test)]
mod tests;
