//! The scopes of a policy that an image is in, the most specific first. Pure.

use super::policy::{Policy, Requirement};
use crate::kubelet::image_archives::image_name::Reference;

impl Policy {
    /// What an image has to satisfy that a pod names so, however it comes to the node.
    pub(crate) fn requirements(&self, image: &Reference) -> &[Requirement] {
        let Some(scopes) = self.transports.get("docker") else { return &self.default };
        let most_specific = scopes_of(image).into_iter().find_map(|scope| scopes.get(&scope));
        most_specific.map_or(&self.default, Vec::as_slice)
    }
}

/// The image itself, its repository, the namespaces, the registry, `*.` and the domains above it, and all images.
fn scopes_of(image: &Reference) -> Vec<String> {
    let name = image.repository();
    let mut scopes = vec![[name.as_str(), &image.suffix().unwrap_or_default()].concat()];
    let mut part = Some(name.as_str());
    while let Some(scope) = part {
        scopes.push(scope.to_owned());
        part = scope.rsplit_once('/').map(|(parent, _)| parent);
    }
    let mut host = image.registry.split(':').next().unwrap_or_default();
    while let Some((_, domain)) = host.split_once('.') {
        scopes.push(["*.", domain].concat());
        host = domain;
    }
    scopes.push(String::new());
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::image_archives::image_name::reference;

    #[test]
    fn scopes_go_from_the_image_to_all_images() {
        for (image, scopes) in [
            (
                "host.example.com:5000/ns/app:1",
                &[
                    "host.example.com:5000/ns/app:1",
                    "host.example.com:5000/ns/app",
                    "host.example.com:5000/ns",
                    "host.example.com:5000",
                    "*.example.com",
                    "*.com",
                    "",
                ][..],
            ),
            (
                "busybox:1",
                &[
                    "docker.io/library/busybox:1",
                    "docker.io/library/busybox",
                    "docker.io/library",
                    "docker.io",
                    "*.io",
                    "",
                ],
            ),
            ("localhost/a:1", &["localhost/a:1", "localhost/a", "localhost", ""]),
        ] {
            assert_eq!(scopes_of(&reference(image).unwrap()), scopes, "{image}");
        }
    }
}
