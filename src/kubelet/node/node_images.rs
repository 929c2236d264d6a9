//! The images listed in the node status, for image locality scheduling. Pure.

use std::cmp::Reverse;

use crate::platform::cri::v1::Image;
use crate::types::api::ContainerImage;
use crate::types::sorted::SortOnce;

/// `MaxNamesPerImageInNodeStatus`.
const MAX_NAMES_PER_IMAGE: usize = 5;

/// The `limit` largest images; `None`: all.
pub(super) fn shown_images(mut images: Vec<Image>, limit: Option<usize>) -> Vec<ContainerImage> {
    images.sort_once_by_key(|image| Reverse(image.size));
    images.truncate(limit.unwrap_or(usize::MAX));
    let shown = |image: Image| ContainerImage {
        names: image.repo_digests.into_iter().chain(image.repo_tags).take(MAX_NAMES_PER_IMAGE).collect(),
        size_bytes: i64::try_from(image.size).unwrap_or(i64::MAX),
    };
    images.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_images_are_listed_with_at_most_five_names() {
        let image = |size: u64| Image {
            size,
            repo_tags: (0..4).map(|tag| format!("r/{size}:{tag}")).collect(),
            repo_digests: (0..2).map(|digest| format!("r/{size}@{digest}")).collect(),
            ..Image::default()
        };
        let shown = |most| shown_images(vec![image(1), image(3), image(2)], most);
        let sizes = |most| shown(most).iter().map(|image| image.size_bytes).collect::<Vec<_>>();
        assert_eq!((sizes(None), sizes(Some(2)), sizes(Some(0))), (vec![3, 2, 1], vec![3, 2], vec![]));
        assert_eq!(shown(Some(1))[0].names, ["r/3@0", "r/3@1", "r/3:0", "r/3:1", "r/3:2"]);
    }
}
