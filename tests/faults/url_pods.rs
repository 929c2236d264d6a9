//! Static pods from a URL: a failing server never affects running pods.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::node::{Manifest, Node};
use crate::wait::wait;

/// Starts a local server that sends these bytes to each client and closes the connection.
fn server(answer: &Arc<Mutex<Vec<u8>>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::clone(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &answer.lock().unwrap().clone());
        }
    });
    port
}

fn serve(mut stream: impl Read + Write, answer: &[u8]) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    let _ = stream.write_all(answer).and_then(|()| stream.flush());
}

/// Starts the same server over TLS. Returns its port and its CA certificate in PEM.
fn tls_server(answer: Vec<u8>) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], secret)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
            serve(&mut stream, &answer);
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    let text = STANDARD.encode(authority.der());
    (port, format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"))
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// The current errors of the pod source.
fn errors(node: &Node) -> Vec<String> {
    let status = node.status();
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let http = sources.into_iter().find(|source| source["name"] == "http").unwrap_or_default();
    let errors = http["errors"].as_array().cloned().unwrap_or_default();
    errors.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[track_caller]
fn wait_for_errors(node: &Node, claim: impl Fn(&[String]) -> bool) {
    wait(|| {
        let errors = errors(node);
        if claim(&errors) { Ok(()) } else { Err(format!("still: {errors:?}")) }
    });
}

#[test]
fn failing_url_stops_no_pod_and_stored_pods_start_without_it() {
    let mut node = Node::new();
    let text = Manifest::new("web").container("main", "stays").text();
    let answer = Arc::new(Mutex::new(ok(&text)));
    let url = format!("http://127.0.0.1:{}/board.yaml", server(&answer));
    node.configure(&format!("staticPodURL: {url}\nhttpCheckFrequency: 1s\n"));
    node.start_agent();
    node.wait_until_ready("web");
    let before = node.seen("web");
    let pods = node.ask(&["pods", "-o", "wide"]).unwrap();
    assert!(pods.contains(&url), "{pods}");

    for (bytes, why) in [
        (ok("<html>Sign in</html>"), "expected an object with apiVersion and kind"),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{text}").into_bytes(), "unexpected EOF"),
        (Vec::new(), "cannot be fetched: EOF"),
    ] {
        *answer.lock().unwrap() = bytes;
        wait_for_errors(&node, |errors| {
            errors.iter().any(|error| error.contains(why) && error.contains("its last good state stays in use"))
        });
        assert_eq!(node.seen("web"), before, "{why}");
    }
    let told = node.log().lines().filter(|line| line.contains("cannot be fetched: EOF")).count();
    assert_eq!(told, 1, "{}", node.log());

    // The agent restarts without the server.
    node.kill_agent();
    node.start_agent();
    node.wait_until_ready("web");
    assert_eq!(node.seen("web"), before);
    wait_for_errors(&node, |errors| errors.iter().any(|error| error.contains("cannot be fetched: EOF")));

    *answer.lock().unwrap() = ok("apiVersion: v1\nkind: PodList\nitems: []\n");
    node.wait_until_nothing_is_left();
    assert_eq!(errors(&node), Vec::<String>::new());
}

#[test]
fn only_the_configured_ca_is_trusted() {
    let mut node = Node::new();
    let (port, authority) = tls_server(ok(&Manifest::new("web").container("main", "stays").text()));
    let (_, another) = tls_server(Vec::new());
    let named = node.folder().join("authorities.pem");
    fs::write(&named, another).unwrap();
    node.configure(&format!("staticPodURL: https://127.0.0.1:{port}/board.yaml\nhttpCheckFrequency: 1s\n"));
    node.start_agent_with(|command| {
        command.arg("--manifest-url-ca-file").arg(&named);
    });
    wait_for_errors(&node, |errors| errors.iter().any(|error| error.contains("invalid peer certificate")));
    assert_eq!(node.status()["pods"], 0);
    // The agent reads the CA file for each request.
    fs::write(&named, "nonsense").unwrap();
    wait_for_errors(&node, |errors| errors.iter().any(|error| error.contains("expected certificates in PEM")));
    fs::write(&named, authority).unwrap();
    node.wait_until_ready("web");
    assert_eq!(errors(&node), Vec::<String>::new());
}
