//! `/logs/...`: the files in /var/log, in the format of Go's `http.FileServer`.
//!
//! Files are opened first and checked afterwards: whatever symlinks are on the path, only files and directories inside
//! /var/log are served.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::node_log_query::{self, NodeLogQuery};
use super::node_log_text::NodeLogText;
use crate::control::server::connections::{FilePart, Reply};
use crate::control::server::http::{Response, Status};
use crate::platform::host::open_beneath::open_below;
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::types::sorted::SortOnce;

const ROOT: &str = "/var/log";

/// `None` for any other path. `queries`: `enableSystemLogQuery`.
pub(super) fn system_logs(request: &Request, queries: bool) -> Option<Reply> {
    let path = request.path.strip_prefix("/logs")?.strip_prefix('/')?.to_owned();
    if request.method != "GET" {
        return Some(Reply::Whole(Response::not_allowed()));
    }
    let mut path = path;
    if queries {
        match node_log_query::parse(request) {
            Err(refused) => return Some(Reply::Whole(refused)),
            Ok(None) => {}
            Ok(Some(NodeLogQuery { file: Some(file), .. })) => path = file,
            Ok(Some(query)) => {
                let text = NodeLogText::new(query, Path::new(ROOT), Path::new("journalctl"));
                return Some(Reply::Text(Box::new(text)));
            }
        }
    }
    let range = request.header("range").map(str::to_owned);
    Some(Reply::File(Box::pin(rt::blocking_for_client(move || show(Path::new(ROOT), &path, range.as_deref())))))
}

/// Blocking.
fn show(root: &Path, path: &str, range: Option<&str>) -> Result<FilePart, Response> {
    if path.split('/').any(|part| part == "..") {
        return Err(Response::text(Status::BadRequest, "invalid URL path\n"));
    }
    let relative = path.trim_matches('/');
    let file = open_below(root, Path::new(if relative.is_empty() { "." } else { relative })).map_err(refused)?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    let base = relative.rsplit('/').next().unwrap_or_default();
    let wants_folder = path.is_empty() || path.ends_with('/');
    match (metadata.is_dir(), wants_folder) {
        (true, true) => list(&file).map_err(|error| failed(&error)),
        (true, false) => Ok(moved(&format!("{}/", escaped(base)))),
        (false, true) => Ok(moved(&format!("../{}", escaped(base)))),
        (false, false) => part_of(file, metadata.len(), range).map_err(|error| failed(&error)),
    }
}

/// The responses of net/http's `toHTTPError`.
fn refused(error: Errno) -> Response {
    match error {
        Errno::NOENT | Errno::NOTDIR => Response::not_found(),
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP | Errno::NXIO => {
            Response::text(Status::Forbidden, "403 Forbidden\n")
        }
        error => failed(&error.into()),
    }
}

fn failed(error: &io::Error) -> Response {
    log!(warn, "failed to serve a file in /var/log", error = error);
    Response::text(Status::InternalServerError, "500 Internal Server Error\n")
}

/// The whole file, or the requested range.
fn part_of(mut file: File, length: u64, range: Option<&str>) -> io::Result<FilePart> {
    let mut beginning = [0; 512];
    let read = file.read_at(&mut beginning, 0)?;
    let kind = kind_of(beginning.get(..read).unwrap_or_default());
    let (status, from, count, content_range) = match range.and_then(|range| Range::of(range, length)) {
        None => ("200 OK", 0, length, String::new()),
        Some(Range::Part { from, count }) => {
            let last = from + count - 1;
            ("206 Partial Content", from, count, format!("Content-Range: bytes {from}-{last}/{length}\r\n"))
        }
        Some(Range::Beyond) => {
            let headers = format!("Content-Range: bytes */{length}\r\n");
            return Ok(without_body("416 Range Not Satisfiable", &headers));
        }
    };
    file.seek(SeekFrom::Start(from))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nX-Content-Type-Options: nosniff\r\nAccept-Ranges: bytes\r\n\
         {content_range}Content-Length: {count}\r\nConnection: close\r\n\r\n"
    );
    Ok(FilePart { head: head.into_bytes(), body: Some((file, count)), end: None, client_share: None })
}

fn moved(to: &str) -> FilePart {
    without_body("301 Moved Permanently", &format!("Location: {to}\r\n"))
}

fn without_body(status: &str, headers: &str) -> FilePart {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
    FilePart { head: head.into_bytes(), body: None, end: None, client_share: None }
}

/// The format of net/http's `dirList`. The listing of a directory that is too large ends with a note.
fn list(folder: &File) -> io::Result<FilePart> {
    let entries = fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_dir())))
    };
    let mut entries = entries.take(MAX_LOG_ENTRIES + 1).map(entry).collect::<io::Result<Vec<_>>>()?;
    let is_cut = entries.len() > MAX_LOG_ENTRIES;
    entries.truncate(MAX_LOG_ENTRIES);
    entries.sort_once();
    let mut page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for (name, is_folder) in entries {
        let slash = if is_folder { "/" } else { "" };
        let mut link = escaped_bytes(name.as_bytes());
        if link.contains(':') {
            // Otherwise the colon would make it a URL scheme.
            link.insert_str(0, "./");
        }
        let shown = name.to_string_lossy();
        let _ = write!(page, "<a href=\"{link}{slash}\">");
        for letter in shown.chars() {
            match letter {
                '&' => page.push_str("&amp;"),
                '<' => page.push_str("&lt;"),
                '>' => page.push_str("&gt;"),
                '"' => page.push_str("&#34;"),
                '\'' => page.push_str("&#39;"),
                letter => page.push(letter),
            }
        }
        page.extend([slash, "</a>\n"]);
    }
    page.push_str("</pre>\n");
    if is_cut {
        let _ = writeln!(page, "Only {MAX_LOG_ENTRIES} entries are shown.");
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    Ok(FilePart { head: head.into_bytes(), body: None, end: None, client_share: None })
}

fn escaped(text: &str) -> String {
    escaped_bytes(text.as_bytes())
}

/// Escapes a path like net/url.
fn escaped_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The requested range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Part {
        from: u64,
        count: u64,
    },
    /// A range that starts after the end of the file.
    Beyond,
}

impl Range {
    /// RFC 9110, section 14.2. `None`: the whole file, also for several ranges or an invalid header.
    fn of(header: &str, length: u64) -> Option<Self> {
        let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        if first.is_empty() {
            let count = number(last)?.min(length);
            return Some(if count == 0 { Self::Beyond } else { Self::Part { from: length - count, count } });
        }
        let from = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < from {
            return None;
        }
        if from >= length {
            return Some(Self::Beyond);
        }
        Some(Self::Part { from, count: last.min(length - 1) - from + 1 })
    }
}

/// Text, unless the beginning has binary data bytes (WHATWG MIME sniffing).
fn kind_of(beginning: &[u8]) -> &'static str {
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match beginning {
        [0x1f, 0x8b, 0x08, ..] => "application/x-gzip",
        bytes if bytes.iter().any(is_binary) => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    }
}

const MAX_LOG_ENTRIES: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A log directory with all kinds of links, and files beside it that must not be served.
    struct Logs(PathBuf);

    impl Logs {
        fn new(name: &str) -> Self {
            let top = std::env::temp_dir().join(format!("coracle-system-logs-{name}-{}", std::process::id()));
            let root = top.join("log");
            fs::create_dir_all(root.join("pods/web")).unwrap();
            fs::create_dir_all(root.join("containers")).unwrap();
            fs::write(root.join("syslog"), "0123456789").unwrap();
            fs::write(root.join("old.gz"), b"\x1f\x8b\x08\0").unwrap();
            fs::write(root.join("a?<b>.log"), "odd").unwrap();
            fs::write(root.join("pods/web/0.log"), "of a container").unwrap();
            fs::write(top.join("secret"), "outside").unwrap();
            for (target, link) in [
                (root.join("pods/web/0.log"), "containers/web.log"),
                (PathBuf::from("../pods"), "containers/back"),
                (PathBuf::from("../secret"), "out"),
                (top.join("secret"), "absolute"),
                (top.clone(), "top"),
                (PathBuf::from("/proc/self/root/etc"), "magic"),
                (PathBuf::from("loop"), "loop"),
                (PathBuf::from("nowhere"), "broken"),
            ] {
                symlink(target, root.join(link)).unwrap();
            }
            nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
            Self(top)
        }

        /// Status line with headers, and body; for a refusal its status and text.
        fn get(&self, path: &str, range: Option<&str>) -> (String, String) {
            match show(&self.0.join("log"), path, range) {
                Ok(part) => {
                    let head = String::from_utf8(part.head).unwrap();
                    let (head, inline) = head.split_once("\r\n\r\n").unwrap();
                    let mut body = inline.to_owned();
                    if let Some((file, length)) = part.body {
                        let mut bytes = Vec::new();
                        file.take(length).read_to_end(&mut bytes).unwrap();
                        body.push_str(&String::from_utf8_lossy(&bytes));
                    }
                    (head.to_owned(), body)
                }
                Err(response) => (format!("{:?}", response.status), String::from_utf8(response.body).unwrap()),
            }
        }
    }

    impl Drop for Logs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn directory_listing_matches_gos_format() {
        let logs = Logs::new("list");
        let (head, page) = logs.get("", None);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", page.len())), "{head}");
        assert_eq!(
            page,
            "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
             <a href=\"a%3F%3Cb%3E.log\">a?&lt;b&gt;.log</a>\n<a href=\"absolute\">absolute</a>\n\
             <a href=\"broken\">broken</a>\n<a href=\"containers/\">containers/</a>\n<a href=\"fifo\">fifo</a>\n\
             <a href=\"loop\">loop</a>\n<a href=\"magic\">magic</a>\n<a href=\"old.gz\">old.gz</a>\n\
             <a href=\"out\">out</a>\n<a href=\"pods/\">pods/</a>\n<a href=\"syslog\">syslog</a>\n\
             <a href=\"top\">top</a>\n</pre>\n"
        );
        assert_eq!(logs.get("pods/", None).1.matches("<a ").count(), 1);
        let moved = "HTTP/1.1 301 Moved Permanently\r\nLocation: pods/\r\nContent-Length: 0\r\nConnection: close";
        assert_eq!(logs.get("pods", None).0, moved);
        assert!(logs.get("syslog/", None).0.contains("Location: ../syslog\r\n"));
    }

    #[test]
    fn file_is_served_whole_or_as_a_range() {
        let logs = Logs::new("file");
        let (head, body) = logs.get("syslog", None);
        assert!(head.contains("200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{head}");
        assert_eq!(body, "0123456789");
        assert!(logs.get("old.gz", None).0.contains("application/x-gzip"));
        for (range, status, content_range, body) in [
            ("bytes=2-4", "206", "bytes 2-4/10", "234"),
            ("bytes=7-", "206", "bytes 7-9/10", "789"),
            ("bytes=-3", "206", "bytes 7-9/10", "789"),
            ("bytes=-99", "206", "bytes 0-9/10", "0123456789"),
            ("bytes=8-99", "206", "bytes 8-9/10", "89"),
            ("bytes=10-", "416", "bytes */10", ""),
            ("bytes=-0", "416", "bytes */10", ""),
            ("bytes=4-2", "200", "", "0123456789"),
            ("bytes=0-1,3-4", "200", "", "0123456789"),
            ("bytes=+1-", "200", "", "0123456789"),
            ("lines=1-2", "200", "", "0123456789"),
        ] {
            let (head, shown) = logs.get("syslog", Some(range));
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{range}: {head}");
            assert!(head.contains(content_range), "{range}: {head}");
            assert_eq!(shown, body, "{range}");
        }
    }

    #[test]
    fn links_are_followed_only_inside_the_log_directory() {
        let logs = Logs::new("links");
        for inside in ["containers/web.log", "containers/back/web/0.log", "pods/web/./0.log", "pods//web/0.log"] {
            assert_eq!(logs.get(inside, None).1, "of a container", "{inside}");
        }
        for outside in ["out", "absolute", "top/", "top/secret", "magic/", "magic/passwd", "loop", "fifo"] {
            assert_eq!(logs.get(outside, None), ("Forbidden".to_owned(), "403 Forbidden\n".to_owned()), "{outside}");
        }
        for climbing in ["../secret", "pods/../../secret", "..", "pods/.."] {
            assert_eq!(logs.get(climbing, None).0, "BadRequest", "{climbing}");
        }
        for absent in ["nothing", "broken", "syslog/more", "/etc/passwd"] {
            assert_eq!(logs.get(absent, None).0, "NotFound", "{absent}");
        }
    }
}
