//! The hash of a container's spec, which upstream writes into the runtime's annotations. Pure.

use std::fmt::Write as _;

use super::container::Container;

/// Covers image and name only. The kubelet replaces a running container whose hash differs.
///
/// FNV-32a over Go's dump of the bytes of `{"image":…,"name":…}` (`HashContainer` in pkg/kubelet/container/helpers.go).
pub fn container_hash(container: &Container) -> u32 {
    let mut json = String::from("{\"image\":");
    push_go_string(&mut json, &container.image);
    json.push_str(",\"name\":");
    push_go_string(&mut json, &container.name);
    json.push('}');

    let mut hash = Fnv32a::new();
    hash.write(b"([]uint8)[");
    let mut text = String::new();
    for (index, byte) in json.bytes().enumerate() {
        text.clear();
        let _ = write!(text, "{}{byte}", if index == 0 { "" } else { " " });
        hash.write(text.as_bytes());
    }
    hash.write(b"]");
    hash.0
}

/// The hash as the annotation `io.kubernetes.container.hash` holds it.
pub fn container_hash_text(container: &Container) -> String {
    format!("{:x}", container_hash(container))
}

/// Writes a string as Go's encoding/json does: with `<`, `>`, `&`, U+2028 and U+2029 escaped.
fn push_go_string(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\u{20}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

/// FNV-32a, which upstream also uses as the checksum of its checkpoint files.
pub fn fnv_32a(bytes: &[u8]) -> u32 {
    let mut hash = Fnv32a::new();
    hash.write(bytes);
    hash.0
}

struct Fnv32a(u32);

impl Fnv32a {
    fn new() -> Self {
        Self(0x811c_9dc5)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, image: &str, hash: &str) {
        let container = Container { name: name.to_owned(), image: image.to_owned(), ..Container::default() };
        assert_eq!(container_hash_text(&container), hash);
    }

    #[test]
    fn hashes_match_the_go_kubelet() {
        check("main", "busybox", "b34e1a14");
        check("web", "registry.k8s.io/pause:3.10", "4f3b3ba7");
        check("a", "localhost/x:1", "9215cca");
        check("ü<&>", "a/b@sha256:00", "89a78cbd");
    }

    #[test]
    fn only_name_and_image_change_the_hash() {
        let mut container = Container { name: "main".to_owned(), image: "busybox".to_owned(), ..Container::default() };
        container.command = ["sleep"].into_iter().collect();
        container.stdin = true;
        assert_eq!(container_hash(&container), 0xb34e_1a14);
    }
}
