//! Pages that the agent serves on its local socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The body of the response. `folder`: the node's, with the socket.
pub(crate) fn page(folder: &Path, path: &str) -> String {
    let mut stream = UnixStream::connect(folder.join("coracle.sock")).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}
