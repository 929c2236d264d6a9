//! Selects and orders the images to remove. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::kubelet::image_archives::image_name::with_default_tag;
use crate::platform::config::ImageGc;
use crate::platform::cri::v1::Image;
use crate::platform::host::file_system::DiskSpace;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// What is known about the images. As upstream, only since the start of this process.
#[derive(Debug)]
pub(super) struct ImageRecords {
    records: SortedMap<String, Record>,
    began: Instant,
    /// The images were listed once; images that were missing then are newer.
    looked: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// `None`: it was in the first listing.
    first_seen: Option<Instant>,
    last_used: Option<Instant>,
}

/// An unused image that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) id: String,
    pub(super) size: u64,
    first_seen: Option<Instant>,
    last_used: Option<Instant>,
    /// When it became unused.
    idle_since: Instant,
}

/// Names, digests and ids of images in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct InUse {
    present: SortedSet<String>,
    /// Names that pods give, with a tag or a digest; the images may be missing.
    wanted: SortedSet<String>,
}

impl ImageRecords {
    pub(super) fn new(began: Instant) -> Self {
        Self { records: SortedMap::new(), began, looked: false }
    }

    /// Records a pull.
    pub(super) fn pulled(&mut self, id: &str, now: Instant) {
        self.records.entry(id.to_owned()).or_insert(Record { first_seen: Some(now), last_used: None });
    }

    /// Updates the records with all images and returns the unused ones, least recently used first.
    pub(super) fn detect_images(&mut self, images: &[Image], in_use: &InUse, now: Instant) -> Vec<Unused> {
        let first_seen = self.looked.then_some(now);
        self.looked = true;
        let there: SortedSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        self.records.retain(|id, _| there.contains(id.as_str()));
        let mut unused = Vec::new();
        for image in images {
            let record = self.records.entry(image.id.clone()).or_insert(Record { first_seen, last_used: None });
            if in_use.has(image) {
                record.last_used = Some(now);
            } else if !image.pinned {
                unused.push(Unused {
                    id: image.id.clone(),
                    size: image.size,
                    first_seen: record.first_seen,
                    last_used: record.last_used,
                    idle_since: record.last_used.or(record.first_seen).unwrap_or(self.began),
                });
            }
        }
        // Images never seen in use come first.
        unused.sort_once_by_key(|image| (image.last_used, image.first_seen));
        unused
    }
}

impl Unused {
    /// Whether it is old enough to be removed: a container may be about to use a new image.
    pub(super) fn is_ripe(&self, min_age: Duration, now: Instant) -> bool {
        self.first_seen.is_none_or(|seen| now.saturating_duration_since(seen) >= min_age)
    }

    /// Whether it is older than the maximum age. Zero: no maximum.
    pub(super) fn is_overdue(&self, max_age: Duration, now: Instant) -> bool {
        !max_age.is_zero() && now.saturating_duration_since(self.idle_since) > max_age
    }
}

impl InUse {
    pub(crate) fn add(&mut self, name: impl Into<String>) {
        let name = name.into();
        if !name.is_empty() {
            self.present.insert(name);
        }
    }

    /// A pod wants the image, so what was fetched of it will be needed.
    pub(crate) fn want(&mut self, name: &str) {
        self.wanted.extend(with_default_tag(name).ok());
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().map(String::as_str)
    }

    fn has(&self, image: &Image) -> bool {
        let names = image.repo_tags.iter().chain(&image.repo_digests).chain(std::iter::once(&image.id));
        names.into_iter().any(|name| self.present.contains(name))
    }
}

/// Whole percent, rounded up.
pub(super) fn used_percent(space: DiskSpace) -> u64 {
    let Some(available) = space.available.saturating_mul(100).checked_div(space.capacity) else { return 0 };
    100_u64.saturating_sub(available)
}

/// The number of bytes to free, if usage is above the high threshold.
pub(super) fn to_free(space: DiskSpace, gc: &ImageGc) -> Option<u64> {
    let is_time = space.capacity > 0 && used_percent(space) >= u64::from(gc.high);
    let goal = u128::from(space.capacity) * u128::from(100_u8.saturating_sub(gc.low)) / 100;
    is_time.then(|| u64::try_from(goal).unwrap_or(u64::MAX).saturating_sub(space.available))
}

/// Message of the event `FreeDiskSpaceFailed`.
pub(super) fn not_enough(room: DiskSpace, freed: u64) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient space by \
         deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, \
         volumes, or other data.",
        used_percent(room),
        human(room.capacity),
    )
}

/// Such as `91.1 GiB`.
fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let steps = (0..units.len()).rev().find(|steps| bytes >> (10 * steps) > 0).unwrap_or(0);
    let unit = units.get(steps).copied().unwrap_or_default();
    // In tenths, rounded like Go but without floats; any capacity fits.
    let half = (1_u128 << (10 * steps)) / 2;
    let tenths = (u128::from(bytes) * 10 + half) >> (10 * steps);
    if steps == 0 { format!("{bytes} {unit}") } else { format!("{}.{} {unit}", tenths / 10, tenths % 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str) -> Image {
        Image { id: id.to_owned(), size: 10, repo_tags: vec![format!("r.io/{id}:1")], ..Image::default() }
    }

    fn in_use(names: &[&str]) -> InUse {
        let mut used = InUse::default();
        names.iter().for_each(|name| used.add(*name));
        used
    }

    fn ids(unused: &[Unused]) -> Vec<&str> {
        unused.iter().map(|image| image.id.as_str()).collect()
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn never_used_images_come_first_then_least_recently_used() {
        let start = Instant::now();
        let mut image_records = ImageRecords::new(start);
        let mut images = vec![image("a"), image("b"), image("c")];
        assert_eq!(ids(&image_records.detect_images(&images, &in_use(&["a", "b", "c"]), start)), NONE);
        assert_eq!(ids(&image_records.detect_images(&images, &in_use(&["a", "c"]), start + SECOND)), ["b"]);
        assert_eq!(ids(&image_records.detect_images(&images, &in_use(&["c"]), start + SECOND * 2)), ["b", "a"]);
        images.push(image("new"));
        assert_eq!(
            ids(&image_records.detect_images(&images, &in_use(&[]), start + SECOND * 3)),
            ["new", "b", "a", "c"]
        );
        images.remove(0);
        assert_eq!(ids(&image_records.detect_images(&images, &in_use(&[]), start + SECOND * 4)), ["new", "b", "c"]);
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn image_is_in_use_by_any_name_and_pinned_ones_stay() {
        let mut image_records = ImageRecords::new(Instant::now());
        let mut digest = image("d");
        digest.repo_digests = vec!["r.io/d@sha256:1".to_owned()];
        let pinned = Image { pinned: true, ..image("p") };
        let images = [image("a"), image("b"), digest, pinned];
        let used = in_use(&["a", "r.io/b:1", "r.io/d@sha256:1", ""]);
        assert_eq!(ids(&image_records.detect_images(&images, &used, Instant::now())), NONE);
        assert_eq!(ids(&image_records.detect_images(&images, &in_use(&["r.io/x:1"]), Instant::now())).len(), 3);
    }

    #[test]
    fn new_image_is_too_young_but_initial_ones_are_not() {
        let start = Instant::now();
        let mut image_records = ImageRecords::new(start);
        image_records.pulled("pulled", start);
        let images = [image("old"), image("pulled")];
        let ripe = |unused: &[Unused], now| {
            let ripe = unused.iter().filter(|image| image.is_ripe(SECOND * 120, now));
            ripe.map(|image| image.id.clone()).collect::<Vec<_>>()
        };
        let unused = image_records.detect_images(&images, &in_use(&[]), start + SECOND);
        assert_eq!(ripe(&unused, start + SECOND), ["old"]);
        assert_eq!(ripe(&unused, start + SECOND * 120), ["old", "pulled"]);
        let imported = image_records.detect_images(&[image("imported")], &in_use(&[]), start + SECOND * 200);
        assert_eq!(ripe(&imported, start + SECOND * 200), Vec::<String>::new());
        assert_eq!(ripe(&imported, start + SECOND * 320), ["imported"]);
    }

    #[test]
    fn image_is_overdue_after_max_age_unused() {
        let start = Instant::now();
        let mut image_records = ImageRecords::new(start);
        let images = [image("idle"), image("used")];
        image_records.detect_images(&images, &in_use(&["used"]), start + SECOND * 50);
        let unused = image_records.detect_images(&images, &in_use(&[]), start + SECOND * 60);
        let overdue = |max_age: u32, at: u32| {
            let now = start + SECOND * at;
            unused.iter().filter(|image| image.is_overdue(SECOND * max_age, now)).count()
        };
        assert_eq!(overdue(0, 10_000), 0, "zero means never");
        assert_eq!(overdue(100, 100), 0);
        assert_eq!(overdue(100, 101), 1);
        assert_eq!(overdue(100, 151), 2);
    }

    #[test]
    fn space_is_freed_from_the_high_to_the_low_threshold() {
        let gc = ImageGc::default();
        let room = |available| DiskSpace { capacity: 1000, available };
        for (available, percent, free) in
            [(1000, 0, None), (160, 84, None), (151, 85, Some(49)), (150, 85, Some(50)), (0, 100, Some(200))]
        {
            assert_eq!(used_percent(room(available)), percent, "{available}");
            assert_eq!(to_free(room(available), &gc), free, "{available}");
        }
        assert_eq!(to_free(DiskSpace { capacity: 0, available: 0 }, &gc), None);
        let huge = DiskSpace { capacity: u64::MAX, available: 0 };
        assert!(to_free(huge, &gc).is_some_and(|bytes| bytes > u64::MAX / 6));
    }

    #[test]
    fn capacity_is_shown_in_the_largest_fitting_unit() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (97_828_376_576, "91.1 GiB")] {
            assert_eq!(human(bytes), text);
        }
        let message = not_enough(DiskSpace { capacity: 28_346_784_153, available: 3_500_000_000 }, 385_820_817);
        assert!(
            message.starts_with("Insufficient free disk space on the node's image filesystem (88% of 26.4 GiB used). ")
        );
    }
}
