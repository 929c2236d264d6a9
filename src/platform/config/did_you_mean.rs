//! Suggests the intended name for a mistyped one. Pure.

/// The candidate within a few typing mistakes of `word`, if there is one.
pub(crate) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Short names are easily similar by chance.
    let limit = (word.len() / 4).clamp(1, 3);
    candidates
        .map(|candidate| (distance(&word.to_ascii_lowercase(), &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The Levenshtein distance.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.chars().count()).collect();
    for (above, one) in left.chars().enumerate() {
        let mut diagonal = above;
        let mut before = above + 1;
        for (cell, other) in row.iter_mut().zip(std::iter::once(None).chain(right.chars().map(Some))) {
            let up = *cell;
            *cell = match other {
                None => before,
                Some(other) => (diagonal + usize::from(one != other)).min(up + 1).min(before + 1),
            };
            before = *cell;
            diagonal = up;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (left, right, changes) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(left, right), changes, "{left} {right}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let known = || ["maxPods", "podsPerCore", "port"].into_iter();
        assert_eq!(nearest("maxPod", known()), Some("maxPods"));
        assert_eq!(nearest("maxpods", known()), Some("maxPods"));
        assert_eq!(nearest("prot", known()), None);
        assert_eq!(nearest("pors", known()), Some("port"));
        assert_eq!(nearest("replicas", known()), None);
    }
}
