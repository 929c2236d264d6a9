//! Bounds on the length of texts. Pure.

/// Truncates `text` to at most `limit` bytes, at a character boundary.
pub(crate) fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        // The rest may be megabytes.
        text.shrink_to_fit();
    }
}

/// The URL without user, password, query and fragment, for a log or a page.
pub(crate) fn without_credentials(url: &str) -> String {
    let (address, hidden) = match url.find(['?', '#']) {
        Some(end) => (url.get(..end).unwrap_or_default(), "?..."),
        None => (url, ""),
    };
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let (authority, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let separator = if scheme.is_empty() { "" } else { "://" };
    [scheme, separator, host, path, hidden].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_boundary() {
        for (limit, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (4, "aéb"), (9, "aéb")] {
            let mut text = "aéb".to_owned();
            cut(&mut text, limit);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn shown_url_has_no_credentials() {
        for (url, shown) in [
            ("https://h/a.yaml", "https://h/a.yaml"),
            ("https://h:8443/a?token=secret", "https://h:8443/a?..."),
            ("https://user:secret@h/a@b", "https://h/a@b"),
            ("http://u@h", "http://h"),
            ("https://h?token=a/b@c", "https://h?..."),
            ("https://h/#secret", "https://h/?..."),
            ("user:secret@h", "h"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
