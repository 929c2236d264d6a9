//! Listening TCP sockets, and the processes that have them.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use super::Procfs;

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpListenerEntry {
    pub(crate) port: u16,
    pub(crate) inode: u64,
}

impl Procfs {
    /// The listening TCP sockets of this network namespace.
    pub(crate) fn listeners(&self) -> Vec<TcpListenerEntry> {
        let tables = ["net/tcp", "net/tcp6"].map(|name| self.text(name).unwrap_or_default());
        tables.iter().flat_map(|table| table.lines()).filter_map(parse).collect()
    }

    /// The pid and name of a process that has the socket open.
    pub(crate) fn holder(&self, socket: u64) -> Option<(u32, String)> {
        let wanted = format!("socket:[{socket}]");
        let has_it = |pid: &u32| {
            let open = fs::read_dir(self.root.join(pid.to_string()).join("fd")).into_iter().flatten().flatten();
            open.filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|target| target.as_os_str().as_bytes() == wanted.as_bytes())
        };
        let pid = self.pids().ok()?.find(has_it)?;
        Some((pid, self.name(pid)))
    }

    /// The name of a running program that is one of `names`.
    pub(crate) fn first_running(&self, names: &[&str]) -> Option<String> {
        self.pids().ok()?.map(|pid| self.name(pid)).find(|name| names.contains(&name.as_str()))
    }

    fn name(&self, pid: u32) -> String {
        self.text(&format!("{pid}/comm")).unwrap_or_default().trim().to_owned()
    }
}

/// `0: 0100007F:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1 ...`: 0A is `TCP_LISTEN`.
fn parse(line: &str) -> Option<TcpListenerEntry> {
    let mut fields = line.split_whitespace();
    let port = fields.nth(1)?.rsplit(':').next()?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == "0A").then_some(TcpListenerEntry { port, inode: inode.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_are_found() {
        let listening =
            "   0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        assert_eq!(parse(listening), Some(TcpListenerEntry { port: 10248, inode: 4711 }));
        assert_eq!(parse(&listening.replace(" 0A ", " 01 ")), None);
        for line in ["", "  sl  local_address rem_address   st tx_queue", "0: x"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn own_listening_socket_is_found_with_its_process() {
        let listener = std::net::TcpListener::bind("[::1]:0").or_else(|_| std::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.unwrap();
        let port = listener.local_addr().unwrap().port();
        let procfs = Procfs::host();
        let found = procfs.listeners().into_iter().find(|entry| entry.port == port).unwrap();
        assert_eq!(procfs.holder(found.inode).unwrap().0, std::process::id());
    }
}
