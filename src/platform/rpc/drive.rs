//! The loop between a socket and one end of an HTTP/2 connection: read, receive, transmit, write.

use std::io;
use std::time::{Duration, Instant};

use super::signal::Signal;
use crate::platform::rt::{self, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use crate::protocol::http2;

/// One end: the protocol state and its users.
pub(crate) trait End {
    /// Handles received bytes.
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error>;

    /// Appends the next bytes to send, if any.
    fn transmit(&self, out: &mut Vec<u8>);

    /// Records that `len` more bytes were written.
    fn written(&self, len: usize);

    /// How many bytes may be written before the connection is closed. At 0 the end is finished.
    fn allowance(&self) -> usize;

    /// Notified when there may be something to transmit.
    fn work(&self) -> &Signal;
}

/// The two halves of a socket of any kind.
pub(crate) type Reader = dyn AsyncRead + Unpin;
pub(crate) type Writer = dyn AsyncWrite + Unpin;

enum Step {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Work,
}

/// Runs until the peer closes the connection, this end is finished, or either fails.
pub(crate) async fn drive(reader: &mut Reader, writer: &mut Writer, end: &dyn End) -> io::Result<()> {
    let mut input = vec![0; RPC_READ_BYTES].into_boxed_slice();
    let mut out = Vec::new();
    let mut sent = 0;
    let mut turns: u32 = 0;
    loop {
        turns = turns.wrapping_add(1);
        if turns % ITERATIONS_PER_YIELD == 0 {
            // A peer that keeps sending must not starve the other tasks, however small its pieces are.
            rt::yield_now().await;
        }
        let seen = end.work().changes();
        if sent == out.len() {
            // Free the buffer instead of keeping it for the next large request.
            out = Vec::new();
            sent = 0;
            end.transmit(&mut out);
        }
        let allowance = end.allowance();
        if allowance == 0 {
            return Ok(());
        }
        let unsent = out.get(sent..).unwrap_or_default();
        let unsent = unsent.get(..allowance).unwrap_or(unsent);
        let write = async {
            match unsent {
                [] => std::future::pending().await,
                unsent => Step::Wrote(writer.write(unsent).await),
            }
        };
        let read = async { Step::Read(reader.read(&mut input).await) };
        let work = async {
            end.work().beyond(seen).await;
            Step::Work
        };
        match rt::either(write, rt::either(read, work)).await {
            Step::Work => {}
            Step::Wrote(Ok(len)) => {
                sent += len;
                end.written(len);
            }
            Step::Wrote(Err(error)) => {
                read_rest(reader, &mut input, end).await;
                return Err(error);
            }
            Step::Read(len) => {
                let len = len?;
                if len == 0 {
                    return Ok(());
                }
                if let Err(error) = end.receive(input.get(..len).unwrap_or_default(), rt::now()) {
                    let unsent = out.get(sent..).unwrap_or_default().to_vec();
                    farewell(writer, unsent, end).await;
                    return Err(io::Error::other(error));
                }
                // More is probably waiting: the other tasks run first.
                if len == RPC_READ_BYTES {
                    rt::yield_now().await;
                }
            }
        }
    }
}

/// Reads what a peer that closed its reading side has already sent, perhaps the responses to all requests.
async fn read_rest(reader: &mut Reader, input: &mut [u8], end: &dyn End) {
    for _ in 0..MAX_LAST_READS {
        let silent = std::future::ready(Ok(0));
        let Ok(len @ 1..) = rt::either(reader.read(input), silent).await else { return };
        if end.receive(input.get(..len).unwrap_or_default(), rt::now()).is_err() {
            return;
        }
    }
}

/// Tells the peer what it did wrong, if it reads.
async fn farewell(writer: &mut Writer, mut out: Vec<u8>, end: &dyn End) {
    end.transmit(&mut out);
    // It does not matter whether the peer receives it.
    let _ = rt::deadline(FAREWELL_TIMEOUT, writer.write_all(&out)).await;
}

const RPC_READ_BYTES: usize = 8 * 1024;
/// Iterations between two yields.
const ITERATIONS_PER_YIELD: u32 = 16;
/// The last frames tell the peer why the connection ends; a peer that does not read must not keep it.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(100);

/// More than a socket buffers.
const MAX_LAST_READS: usize = 64;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use crate::platform::rt::UnixStream;

    /// An end that always has something to send, and records what it receives.
    #[derive(Default)]
    struct Talker {
        received: RefCell<Vec<u8>>,
        work: Signal,
    }

    impl End for Talker {
        fn receive(&self, bytes: &[u8], _: Instant) -> Result<(), http2::Error> {
            self.received.borrow_mut().extend_from_slice(bytes);
            Ok(())
        }

        fn transmit(&self, out: &mut Vec<u8>) {
            out.extend_from_slice(&[0; 1000]);
        }

        fn written(&self, _: usize) {}

        fn allowance(&self) -> usize {
            usize::MAX
        }

        fn work(&self) -> &Signal {
            &self.work
        }
    }

    #[test]
    fn data_sent_before_a_close_is_received() {
        rt::block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&[7; 20_000]).await.unwrap();
            drop(theirs);
            let talker = Talker::default();
            let ended = drive(&mut ours.clone(), &mut ours.clone(), &talker).await;
            assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(*talker.received.borrow(), [7; 20_000]);
        });
    }

    /// A peer that always has one more byte.
    struct Dripping(usize);

    impl AsyncRead for Dripping {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
            self.0 += 1;
            assert!(self.0 < 10_000, "the peer is read without a pause");
            out[0] = 7;
            Poll::Ready(Ok(1))
        }
    }

    #[test]
    fn dripping_peer_does_not_block_deadlines() {
        rt::block_on(async {
            let (mut ours, _theirs) = UnixStream::pair().unwrap();
            let listener = Listener::default();
            let mut peer = Dripping(0);
            let driven = rt::deadline(Duration::ZERO, drive(&mut peer, &mut ours, &listener)).await;
            assert_eq!(driven.unwrap_err(), rt::Elapsed);
        });
    }

    /// An end that has nothing to send.
    #[derive(Default)]
    struct Listener(Signal);

    impl End for Listener {
        fn receive(&self, _: &[u8], _: Instant) -> Result<(), http2::Error> {
            Ok(())
        }

        fn transmit(&self, _: &mut Vec<u8>) {}

        fn written(&self, _: usize) {}

        fn allowance(&self) -> usize {
            usize::MAX
        }

        fn work(&self) -> &Signal {
            &self.0
        }
    }
}
