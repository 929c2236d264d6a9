//! The life of a connection.

use std::net::TcpStream;
use std::sync::Arc;

use super::Shared;
use super::connection::Wire;
use super::exchange::Http1;
use super::handle::{self, Client};
use super::http::Reader;
use super::http2;
use super::world::Traffic;

/// Serves requests until the client closes the connection or the test ends.
pub(super) fn serve(shared: &Arc<Shared>, tcp: TcpStream, number: u64, traffic: &Arc<Traffic>) {
    if shared.pass(0) {
        let mut wire = Wire::new(tcp, Arc::clone(traffic), shared.tls.as_ref());
        // A failed handshake means that the client has gone or rejects the server's certificate.
        if let Ok((is_http2, first)) = wire.shake_hands() {
            if is_http2 {
                http2::serve(shared, wire, number, first);
            } else {
                serve_http1(shared, wire, number, first);
            }
        }
    }
    shared.remove_socket(number);
    shared.change(|world| world.disconnect(number));
}

fn serve_http1(shared: &Arc<Shared>, mut wire: Wire, number: u64, first: Vec<u8>) {
    let client = Client { connection: number, certificate: wire.client_certificate() };
    let mut reader = Reader::new(first);
    while let Ok(Some(message)) = reader.read(&mut wire) {
        if !shared.pass(0) {
            break;
        }
        let closes = message.wants_close() || message.is_too_large;
        let token = shared.change(|world| world.next_number());
        let mut exchange = Http1::new(&mut wire);
        let is_answered = handle::handle(shared, &mut exchange, &client, token, message).is_ok();
        if !is_answered || !exchange.is_reusable || closes {
            break;
        }
    }
    wire.close();
}
