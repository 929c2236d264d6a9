//! The bounds of a server. Pure.

/// Bounds the memory that clients can make a server use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of one request message.
    pub message: u32,
    /// Bytes of all unanswered requests on one connection.
    pub connection: usize,
    pub connections: usize,
}

impl Default for ServerLimits {
    /// For sockets that plugins and monitors of this node call: their requests are a few hundred bytes.
    fn default() -> Self {
        Self { message: 64 * 1024, connection: 256 * 1024, connections: 32 }
    }
}

impl ServerLimits {
    /// For servers that play a container runtime: the message limit of containerd.
    pub const fn large() -> Self {
        Self { message: 16 * 1024 * 1024, connection: usize::MAX, connections: 100 }
    }
}
