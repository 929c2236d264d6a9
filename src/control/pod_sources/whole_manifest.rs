//! A manifest that is accepted or rejected as a whole: put on the node or fetched from a URL. Pure.

use std::sync::Arc;

use super::merge::same_content;
use super::static_pod::{Object, Origin, WorkloadPods, read_manifest};
use crate::state::objects::SourceObject;
use crate::types::api::{AgentSpec, Pod, Time};

/// The contents of an accepted manifest.
#[derive(Clone, Debug, Default)]
pub(super) struct WholeManifest {
    pub(super) pods: Vec<Arc<Pod>>,
    /// Namespaces and names of its pods and workloads, as the manifest has them.
    pub(super) names: Vec<(String, String)>,
    pub(super) objects: Vec<SourceObject>,
    pub(super) agent: Option<Arc<AgentSpec>>,
    /// One line each.
    pub(super) warnings: Vec<String>,
}

impl WholeManifest {
    /// Parses `text`. The error lists everything that is wrong in one line. An empty manifest is valid.
    pub(super) fn read(text: &[u8], origin: &Origin<'_>, shown_origin: &Arc<str>, now: Time) -> Result<Self, String> {
        let mut manifest = Self::default();
        let mut problems: Vec<String> = Vec::new();
        let source_object =
            |object| SourceObject { object: Arc::new(object), origin: Arc::clone(shown_origin), since: now };
        for object in read_manifest(text, origin).map_err(|error| error.to_string())? {
            problems.extend(object.problem());
            manifest.warnings.extend(object.warning_lines());
            match object.object {
                Ok(Object::Agent(agent)) => {
                    if manifest.agent.replace(Arc::new(*agent)).is_some() {
                        problems.push("kind Agent: more than one".to_owned());
                    }
                }
                Ok(Object::Pod(pod)) => {
                    let suffix = format!("-{}", origin.node_name.to_lowercase());
                    let name = pod.metadata.name.strip_suffix(&suffix).unwrap_or(&pod.metadata.name).to_owned();
                    manifest.names.push((pod.metadata.namespace.clone(), name));
                    manifest.pods.push(Arc::new(*pod));
                }
                Ok(Object::Workload(workload)) => {
                    let WorkloadPods { namespace, name, pods, claims, .. } = *workload;
                    manifest.names.push((namespace, name));
                    manifest.pods.extend(pods.into_iter().map(Arc::new));
                    manifest.objects.extend(claims.into_iter().map(source_object));
                }
                Ok(Object::Config(config)) => manifest.objects.push(source_object(config)),
                Err(_) => {}
            }
        }
        if problems.is_empty() { Ok(manifest) } else { Err(problems.join("; ")) }
    }

    /// Reuses the previous pods and objects where they are unchanged, with the time when they were first seen.
    pub(super) fn keeping(mut self, before: &Self) -> Self {
        for pod in &mut self.pods {
            let same = |old: &&Arc<Pod>| old.metadata.uid == pod.metadata.uid && same_content(old, pod);
            if let Some(old) = before.pods.iter().find(same) {
                *pod = Arc::clone(old);
            }
        }
        for object in &mut self.objects {
            if let Some(old) = before.objects.iter().find(|old| *old.object == *object.object) {
                *object = old.clone();
            }
        }
        self
    }
}
