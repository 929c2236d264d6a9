//! Sockets and descriptors: the kernel's, or in tests those of this thread's simulation.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::network::Pipe;
use super::virtual_time::world;
use super::{AsyncRead, AsyncWrite};

macro_rules! stream {
    ($name:ident, $kernel:ty) => {
        #[derive(Clone, Debug)]
        pub enum $name {
            Kernel($kernel),
            Simulated(Pipe),
        }

        impl From<$kernel> for $name {
            fn from(stream: $kernel) -> Self {
                Self::Kernel(stream)
            }
        }

        impl AsyncRead for $name {
            fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Kernel(stream) => Pin::new(stream).poll_read(context, out),
                    Self::Simulated(pipe) => Pin::new(pipe).poll_read(context, out),
                }
            }
        }

        impl AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Kernel(stream) => Pin::new(stream).poll_write(context, bytes),
                    Self::Simulated(pipe) => Pin::new(pipe).poll_write(context, bytes),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Kernel(stream) => Pin::new(stream).poll_flush(context),
                    Self::Simulated(pipe) => Pin::new(pipe).poll_flush(context),
                }
            }

            fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Kernel(stream) => Pin::new(stream).poll_close(context),
                    Self::Simulated(pipe) => Pin::new(pipe).poll_close(context),
                }
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                match self {
                    Self::Kernel(stream) => stream.as_fd(),
                    Self::Simulated(pipe) => pipe.as_fd(),
                }
            }
        }
    };
}

stream!(TcpStream, smol::net::TcpStream);
stream!(UnixStream, smol::net::unix::UnixStream);

impl TcpStream {
    pub async fn connect(address: impl smol::net::AsyncToSocketAddrs) -> io::Result<Self> {
        smol::net::TcpStream::connect(address).await.map(Self::Kernel)
    }

    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nodelay(nodelay),
            Self::Simulated(_) => Ok(()),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.local_addr(),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.peer_addr(),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl From<Async<std::net::TcpStream>> for TcpStream {
    fn from(stream: Async<std::net::TcpStream>) -> Self {
        Self::Kernel(stream.0.into())
    }
}

impl UnixStream {
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        match world() {
            Some(world) => world.network.connect(&path.as_ref().to_string_lossy()).await.map(Self::Simulated),
            None => smol::net::unix::UnixStream::connect(path).await.map(Self::Kernel),
        }
    }

    pub fn pair() -> io::Result<(Self, Self)> {
        smol::net::unix::UnixStream::pair().map(|(one, other)| (Self::Kernel(one), Self::Kernel(other)))
    }

    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.shutdown(how),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A simulated connection to `address`, if a simulation runs on this thread.
pub(crate) async fn simulated_connection(address: SocketAddr) -> Option<io::Result<TcpStream>> {
    let world = world()?;
    Some(world.network.connect(&address.to_string()).await.map(TcpStream::Simulated))
}

#[derive(Clone, Debug)]
pub struct TcpListener(smol::net::TcpListener);

impl TcpListener {
    /// Never completes in a simulation, which has no clients from outside.
    pub async fn bind(address: impl smol::net::AsyncToSocketAddrs) -> io::Result<Self> {
        match world() {
            Some(_) => std::future::pending().await,
            None => smol::net::TcpListener::bind(address).await.map(Self),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await.map(|(stream, peer)| (TcpStream::Kernel(stream), peer))
    }
}

#[derive(Clone, Debug)]
pub struct UnixListener(smol::net::unix::UnixListener);

impl UnixListener {
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        smol::net::unix::UnixListener::bind(path).map(Self)
    }

    /// Never completes in a simulation, which has no clients from outside.
    pub async fn accept(&self) -> io::Result<(UnixStream, smol::net::unix::SocketAddr)> {
        if world().is_some() {
            return std::future::pending().await;
        }
        self.0.accept().await.map(|(stream, peer)| (UnixStream::Kernel(stream), peer))
    }
}

/// A kernel descriptor. A simulation has none, so its callers rely on their timers.
#[derive(Debug)]
pub struct Async<T>(smol::Async<T>);

impl<T: AsFd> Async<T> {
    pub fn new(source: T) -> io::Result<Self> {
        match world() {
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
            None => smol::Async::new(source).map(Self),
        }
    }

    pub fn new_nonblocking(source: T) -> io::Result<Self> {
        match world() {
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
            None => smol::Async::new_nonblocking(source).map(Self),
        }
    }
}

impl<T> Deref for Async<T> {
    type Target = smol::Async<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> AsyncRead for Async<T>
where
    smol::Async<T>: AsyncRead + Unpin,
    T: Unpin,
{
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(context, out)
    }
}

impl<T> AsyncWrite for Async<T>
where
    smol::Async<T>: AsyncWrite + Unpin,
    T: Unpin,
{
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(context)
    }
}
