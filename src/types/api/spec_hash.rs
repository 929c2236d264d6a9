//! Hashes of what does not change in a running pod: what the runtime runs is compared with a manifest by them. Pure.

use super::container::Container;
use super::container_hash::fnv_32a;
use super::encode_text;
use super::pod::Pod;
use super::quantity::Quantity;
use super::resources::{CPU, MEMORY};

/// Covers the container without its image, whose change replaces it, and without amounts of CPU and memory, which are
/// resized.
pub fn container_spec_hash(container: &Container) -> u32 {
    let mut container = container.clone();
    clear_mutable(&mut container);
    fnv_32a(encode_text(&container).as_bytes())
}

/// Covers the spec without its containers.
pub fn pod_spec_hash(pod: &Pod) -> u32 {
    let mut spec = pod.spec.clone();
    spec.containers.clear();
    spec.init_containers.iter_mut().for_each(clear_mutable);
    fnv_32a(encode_text(&spec).as_bytes())
}

fn clear_mutable(container: &mut Container) {
    container.image.clear();
    for list in [&mut container.resources.requests, &mut container.resources.limits] {
        for name in [CPU, MEMORY] {
            if let Some(amount) = list.get_mut(name) {
                *amount = Quantity::default();
            }
        }
    }
}
