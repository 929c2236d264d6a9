//! Whether a request is meant for this node and comes from its own page. Pure.
//!
//! A foreign page can make a browser send requests here. If it uses its own name, made to resolve to this node (DNS
//! rebinding), that name is in the Host header. If it uses the node's name, the browser marks the request as
//! cross-site.

use std::net::IpAddr;

use crate::protocol::http1::Request;

/// Whether the Host of a request is a name of this node: a loopback name, the local address of the connection, or the
/// node name.
pub(super) fn is_ours(host: &str, local_address: Option<IpAddr>, node_name: &str) -> bool {
    let Some(name) = without_port(host) else { return false };
    let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    if let Ok(address) = literal.parse::<IpAddr>() {
        // DNS rebinding cannot fake an address.
        let address = address.to_canonical();
        return address.is_loopback() || Some(address) == local_address;
    }
    let in_local = name.len().checked_sub(MDNS_DOMAIN.len()).and_then(|at| name.split_at_checked(at));
    let bare = match in_local {
        Some((bare, end)) if end.eq_ignore_ascii_case(MDNS_DOMAIN) => bare,
        _ => name,
    };
    name.eq_ignore_ascii_case("localhost") || bare.eq_ignore_ascii_case(node_name)
}

/// The mDNS domain, by which a board is found without a name server.
const MDNS_DOMAIN: &str = ".local";

/// With forwarded connections, the port may differ.
fn without_port(host: &str) -> Option<&str> {
    let end = host.find(']').map_or(0, |at| at + 1);
    let (name, port) = match host.get(end..)?.split_once(':') {
        Some((rest, port)) => (host.get(..end + rest.len())?, port),
        None => (host, ""),
    };
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}

/// Whether the browser sends the request for a page of another site. Links to the page itself are allowed.
pub(super) fn is_from_elsewhere(request: &Request) -> bool {
    let site = request.header("sec-fetch-site");
    request.path != "/" && site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_known_by_loopback_names_local_address_and_node_name() {
        let here = "192.168.1.7".parse().ok();
        for host in [
            "localhost",
            "LOCALHOST:4194",
            "localhost:8080",
            "127.0.0.1:4194",
            "127.1.2.3",
            "[::1]:4194",
            "[::1]",
            "192.168.1.7",
            "192.168.1.7:4194",
            "[::ffff:192.168.1.7]:4194",
            "edge-7:4194",
            "Edge-7.local:4194",
        ] {
            assert!(is_ours(host, here, "edge-7"), "{host}");
        }
        for host in [
            "",
            ":4194",
            "evil.example",
            "evil.example:4194",
            "localhost.evil.example",
            "localhost.local",
            "127.0.0.1.evil.example",
            "192.168.1.8",
            "edge-7.evil.example",
            "edge-7.local.evil.example",
            "edge-7é.local",
            ".local",
            "localhost:x",
            "localhost:80:80",
            "user@localhost",
            "[::1",
            "[::1]x",
            "[192.168.1.7].evil.example",
            "0.0.0.0",
        ] {
            assert!(!is_ours(host, here, "edge-7"), "{host}");
        }
        assert!(!is_ours("192.168.1.7", None, "edge-7"));
    }

    #[test]
    fn foreign_page_may_link_here_but_read_nothing() {
        let asks = |path: &str, site: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{site}\r\n");
            is_from_elsewhere(&Request::take(text.as_bytes()).unwrap().unwrap().0)
        };
        for (site, elsewhere) in [
            ("", false),
            ("Sec-Fetch-Site: same-origin\r\n", false),
            ("Sec-Fetch-Site: none\r\n", false),
            ("Sec-Fetch-Site: same-site\r\n", true),
            ("Sec-Fetch-Site: cross-site\r\n", true),
        ] {
            assert_eq!(asks("/pods", site), elsewhere, "{site}");
            assert!(!asks("/", site), "{site}");
        }
    }
}
