//! Copies bytes between two connections, in both directions at once, at the pace of the slower side.

use std::io;
use std::time::Duration;

use super::stream_slots::UNREAD_STREAM_TIMEOUT;
use crate::platform::rt::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, TcpStream};

/// A stream of any kind, so that the code of connections exists once and not once for each kind.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// Returns when `to` has closed, or the client has. After the client closes, data in flight from `to` is still
/// delivered, but no more: a runtime keeps producing output without a reader.
pub(super) async fn relay<S>(client: &mut S, to: TcpStream, first: &[u8]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let (from_client, to_client) = rt::split(client);
    let (answers, mut asks) = (to.clone(), to);
    asks.write_all(first).await?;
    let up = async {
        copy(from_client, asks).await?;
        rt::sleep(CLOSED_CLIENT_WAIT).await;
        Ok(())
    };
    let down = copy(answers, to_client);
    rt::either(down, up).await
}

/// Copies everything, then closes the other side.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; RELAY_BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.close().await;
        }
        let part = to.write_all(buffer.get(..read).unwrap_or_default());
        rt::deadline(UNREAD_STREAM_TIMEOUT, part).await.map_err(io::Error::other)??;
        // A side that always has more data must not block other tasks.
        rt::yield_now().await;
    }
}

const RELAY_BUFFER_BYTES: usize = 16 * 1024;
/// For what is in flight when the client has closed.
const CLOSED_CLIENT_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::{TcpListener, UnixStream, block_on};

    /// A client's end of a connection, and the end of the relay's target.
    async fn joined(first: &'static [u8]) -> (UnixStream, TcpStream, rt::Task<io::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (runtime, _) = listener.accept().await.unwrap();
        let (client, mut inner) = UnixStream::pair().unwrap();
        let task = rt::spawn(async move { relay(&mut inner, to, first).await });
        (client, runtime, task)
    }

    #[test]
    fn client_that_closed_its_side_still_gets_the_response() {
        block_on(async {
            let (mut client, mut runtime, task) = joined(b"first ").await;
            client.write_all(b"words").await.unwrap();
            client.close().await.unwrap();
            let mut heard = String::new();
            runtime.read_to_string(&mut heard).await.unwrap();
            assert_eq!(heard, "first words");
            runtime.write_all(b"answer").await.unwrap();
            runtime.close().await.unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).await.unwrap();
            assert_eq!(response, "answer");
            task.await.unwrap();
        });
    }

    #[test]
    fn relay_stops_reading_without_a_reader() {
        block_on(async {
            let (mut client, mut runtime, task) = joined(b"").await;
            let sent = async {
                let mut sent = 0_usize;
                loop {
                    sent += client.write(&[7; 65536]).await.unwrap();
                    if sent > 64 << 20 {
                        return sent;
                    }
                }
            };
            let stopped = async {
                // Full buffers on both sides show as nothing but silence.
                rt::sleep(Duration::from_millis(300)).await;
                0
            };
            assert_eq!(rt::either(sent, stopped).await, 0, "64 MiB went nowhere");
            drop(client);
            // The runtime receives what was sent, and the end.
            let mut rest = Vec::new();
            runtime.read_to_end(&mut rest).await.unwrap();
            assert!(rest.iter().all(|byte| *byte == 7));
            drop(runtime);
            let _ = task.await;
        });
    }
}
