//! The node's images with their users, and the removal of an unused image.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use super::labels::pod_of;
use crate::kubelet::image_archives::ImageArchives;
use crate::kubelet::images::{CollectError, Images, images_of};
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::RuntimeService;
use crate::platform::cri::v1::Image;
use crate::types::api::Pod;
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};

/// An image and its users.
#[derive(Debug, PartialEq)]
pub(crate) struct KnownImage {
    pub(crate) image: Image,
    /// Such as `default/web-node1`; [`SANDBOXES`] for the pause image.
    pub(crate) users: SortedSet<String>,
}

/// Why an image was not removed.
#[derive(Debug)]
pub(crate) enum RemoveImageError {
    Call(CollectError),
    InUse {
        image: String,
        users: SortedSet<String>,
    },
    Missing(String),
    /// By the runtime.
    Pinned(String),
}

impl fmt::Display for RemoveImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::InUse { image, users } => {
                let users: Vec<&str> = users.iter().map(String::as_str).collect();
                write!(f, "image {image} is in use by {}", users.join(", "))
            }
            Self::Missing(image) => write!(f, "no image {image}"),
            Self::Pinned(image) => write!(f, "image {image} is pinned by the runtime"),
        }
    }
}

impl std::error::Error for RemoveImageError {}

impl<E: Into<CollectError>> From<E> for RemoveImageError {
    fn from(error: E) -> Self {
        Self::Call(error.into())
    }
}

/// The user of the pause image.
const SANDBOXES: &str = "(every pod)";

/// The images of the node: of its pods and of others.
pub(crate) struct NodeImages {
    pub(super) pulls: Images,
    pub(super) cri: RuntimeService,
    pub(super) node: Rc<NodeSettings>,
}

impl NodeImages {
    /// All images. The images of all `pods` count as used, whether they run or not.
    pub(crate) async fn list(&self, pods: &[Arc<Pod>]) -> Result<Vec<KnownImage>, CollectError> {
        let failed = |error: crate::platform::cri::Error| CollectError::Failed(ErrorChain(&error).to_string());
        let mut users = Users::default();
        for container in self.cri.list_containers(None).await.map_err(failed)? {
            let user = pod_of(&container.labels).unwrap_or_else(|| container.id.clone());
            for key in [container.image_ref, container.image_id, container.image.unwrap_or_default().image] {
                users.add(key, &user);
            }
        }
        let mut named = named_by(pods);
        for (image, file) in self.pulls.archives().pinned() {
            named.entry(image).or_default().push(format!("(archive {file})"));
        }
        if let Some(sandbox_image) = self.cri.status(true).await.map_err(failed)?.sandbox_image() {
            named.entry(sandbox_image).or_default().push(SANDBOXES.to_owned());
        }
        for (name, by) in named {
            if let Some(id) = self.pulls.id_of(&name).await? {
                by.iter().for_each(|user| users.add(id.clone(), user));
            }
        }
        Ok(self.pulls.list().await?.into_iter().map(|image| users.of(image)).collect())
    }

    /// Images that are not present, with the pods that need them.
    pub(crate) async fn missing(&self, pods: &[Arc<Pod>]) -> Result<Vec<(String, Vec<String>)>, CollectError> {
        let mut missing = Vec::new();
        for (name, by) in named_by(pods) {
            if self.pulls.id_of(&name).await?.is_none() {
                missing.push((name, by));
            }
        }
        Ok(missing)
    }

    /// The image archives and their states.
    pub(crate) fn archives(&self) -> &ImageArchives {
        self.pulls.archives()
    }

    /// Removes the image with this name; returns its id.
    pub(crate) async fn remove(&self, name: &str, pods: &[Arc<Pod>]) -> Result<String, RemoveImageError> {
        let id = self.pulls.id_of(name).await?;
        let images = self.list(pods).await?;
        let image = images.iter().find(|known| Some(&known.image.id) == id.as_ref());
        let image = image.ok_or_else(|| RemoveImageError::Missing(name.to_owned()))?;
        image.check_removable(name)?;
        self.pulls.remove_one(&image.image).await?;
        Ok(image.image.id.clone())
    }
}

/// The images that pods refer to, with these pods.
fn named_by(pods: &[Arc<Pod>]) -> SortedMap<String, Vec<String>> {
    let mut named: SortedMap<String, Vec<String>> = SortedMap::new();
    for pod in pods {
        let user = [&*pod.metadata.namespace, "/", &*pod.metadata.name].concat();
        for name in images_of(pod) {
            let users = named.entry(name.to_owned()).or_default();
            if !users.contains(&user) {
                users.push(user.clone());
            }
        }
    }
    named
}

impl KnownImage {
    fn check_removable(&self, name: &str) -> Result<(), RemoveImageError> {
        let image = name.to_owned();
        if !self.users.is_empty() {
            return Err(RemoveImageError::InUse { image, users: self.users.clone() });
        }
        match self.image.pinned {
            true => Err(RemoveImageError::Pinned(image)),
            false => Ok(()),
        }
    }
}

/// Users by image id, digest or name.
#[derive(Debug, Default)]
struct Users(SortedMap<String, SortedSet<String>>);

impl Users {
    fn add(&mut self, key: String, user: &str) {
        if !key.is_empty() {
            self.0.entry(key).or_default().insert(user.to_owned());
        }
    }

    fn of(&self, image: Image) -> KnownImage {
        let names = image.repo_tags.iter().chain(&image.repo_digests).chain([&image.id]);
        let users = names.filter_map(|name| self.0.get(name)).flatten().cloned().collect();
        KnownImage { image, users }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_in_use_under_any_name_or_pinned_is_kept() {
        let image = |id: &str, tag: &str| Image {
            id: id.to_owned(),
            repo_tags: vec![tag.to_owned()],
            repo_digests: vec![format!("{tag}@digest")],
            ..Image::default()
        };
        let mut users = Users::default();
        users.add(String::new(), "nobody");
        users.add("a:1".to_owned(), "x/b");
        users.add("a:1@digest".to_owned(), "x/a");
        users.add("id".to_owned(), "x/a");
        let needed = users.of(image("id", "a:1"));
        let refusal = |known: &KnownImage, name| known.check_removable(name).map_err(|error| error.to_string());
        assert_eq!(refusal(&needed, "a:1"), Err("image a:1 is in use by x/a, x/b".to_owned()));
        let mut other = users.of(image("other", "b:1"));
        assert_eq!(refusal(&other, "b:1"), Ok(()));
        other.image.pinned = true;
        assert_eq!(refusal(&other, "b:1"), Err("image b:1 is pinned by the runtime".to_owned()));
    }
}
