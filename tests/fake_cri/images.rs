//! Present images, and images that can be pulled.

use coracle::platform::cri::v1;
use coracle::protocol::grpc::{Code, Status};

use super::world::made_up_id;

#[derive(Debug, Default)]
pub(crate) struct Images {
    present: Vec<v1::Image>,
    published: Vec<String>,
}

impl Images {
    pub(super) fn add(&mut self, reference: &str) {
        if self.find(reference).is_none() {
            self.present.push(image(&full_name(reference)));
        }
    }

    pub(super) fn publish(&mut self, reference: &str) {
        self.published.push(full_name(reference));
    }

    /// Finds an image by id or name.
    pub(crate) fn find(&self, reference: &str) -> Option<&v1::Image> {
        let name = full_name(reference);
        self.present.iter().find(|image| {
            image.id == reference || image.repo_tags.contains(&name) || image.repo_digests.contains(&name)
        })
    }

    pub(super) fn list(&self, filter: Option<&v1::ImageFilter>) -> Vec<v1::Image> {
        let wanted = filter.and_then(|filter| filter.image.as_ref()).map_or("", |image| image.image.as_str());
        if wanted.is_empty() { self.present.clone() } else { self.find(wanted).cloned().into_iter().collect() }
    }

    pub(super) fn pull(&mut self, reference: &str) -> Result<String, Status> {
        let name = full_name(reference);
        if !is_reference(&name) {
            let message = format!("failed to parse image reference \"{reference}\": invalid reference format");
            return Err(Status::new(Code::Unknown, message));
        }
        if !self.published.contains(&name) && self.find(&name).is_none() {
            let message = format!(
                "failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\": {name}: not found"
            );
            return Err(Status::new(Code::NotFound, message));
        }
        self.add(&name);
        Ok(image(&name).id)
    }

    pub(super) fn remove(&mut self, reference: &str) {
        let id = self.find(reference).map(|image| image.id.clone());
        self.present.retain(|image| Some(&image.id) != id.as_ref());
    }
}

fn image(name: &str) -> v1::Image {
    let seed = name.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let digest = made_up_id(!seed);
    let repository = name.rsplit_once(':').map_or(name, |(repository, _)| repository);
    v1::Image {
        id: format!("sha256:{}", made_up_id(seed)),
        repo_tags: vec![name.to_owned()],
        repo_digests: vec![format!("{repository}@sha256:{digest}")],
        size: 2_000_000,
        ..v1::Image::default()
    }
}

/// Whether a full name has the form `HOST[:PORT]/PATH[:TAG][@DIGEST]`.
fn is_reference(name: &str) -> bool {
    let only = |text: &str, others: &str| {
        !text.is_empty() && text.chars().all(|each| each.is_ascii_alphanumeric() || others.contains(each))
    };
    let (name, digest) = name.split_once('@').map_or((name, None), |(name, digest)| (name, Some(digest)));
    let (host, rest) = name.split_once('/').unwrap_or(("docker.io", name));
    let (path, tag) = rest.rsplit_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let (host, port) = host.split_once(':').unwrap_or((host, "1"));
    let is_component = |part: &str| {
        let is_end = |end: Option<char>| end.is_some_and(|end| end.is_ascii_lowercase() || end.is_ascii_digit());
        only(part, "._-")
            && !part.contains(char::is_uppercase)
            && is_end(part.chars().next())
            && is_end(part.chars().last())
    };
    let is_digest = |digest: &str| {
        let hash = digest.split_once(':').map(|(_, hash)| hash);
        hash.is_some_and(|hash| hash.len() >= 32 && hash.chars().all(|digit| digit.is_ascii_hexdigit()))
    };
    only(host, ".-")
        && port.parse::<u16>().is_ok()
        && path.split('/').all(is_component)
        && tag.is_none_or(|tag| tag.len() <= 128 && only(tag, "._-"))
        && digest.is_none_or(is_digest)
}

/// `busybox` is `docker.io/library/busybox:latest`.
fn full_name(reference: &str) -> String {
    if reference.starts_with("sha256:") {
        return reference.to_owned();
    }
    let host = reference.split_once('/').map(|(host, _)| host);
    let with_host = match host {
        Some(host) if host.contains(['.', ':']) || host == "localhost" => reference.to_owned(),
        Some(_) => format!("docker.io/{reference}"),
        None => format!("docker.io/library/{reference}"),
    };
    let last = with_host.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) { with_host } else { format!("{with_host}:latest") }
}
