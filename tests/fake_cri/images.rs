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
