//! Pages that the agent serves on its local socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The body of the response. `folder`: the node's, with the socket.
pub(crate) fn page(folder: &Path, path: &str) -> String {
    let answer = ask(folder, path).unwrap();
    body(&answer).unwrap_or_else(|| panic!("{answer}"))
}

/// As [`page`]; `None` while the agent does not answer. Costs a third of a program that prints the page.
pub(crate) fn page_if_served(folder: &Path, path: &str) -> Option<String> {
    body(&ask(folder, path).ok()?)
}

fn ask(folder: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(folder.join("coracle.sock"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn body(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    // A killed agent may have sent a part.
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
    (head.starts_with("HTTP/1.1 200 ") && length.parse() == Ok(body.len())).then(|| body.to_owned())
}

/// As the agent's commands.
const PATIENCE: Duration = Duration::from_secs(12);
