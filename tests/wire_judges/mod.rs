//! Independent implementations judge the wire protocols in both directions: h2 for HTTP/2, tonic for gRPC calls.

mod grpc;
mod http2;

/// A small random number generator: the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % limit
    }

    fn bytes(&mut self, limit: usize) -> Vec<u8> {
        let len = self.below(limit);
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap()).collect()
    }
}
