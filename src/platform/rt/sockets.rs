//! Sockets and descriptors: the kernel's, or in tests those of this thread's simulation.

use std::any::type_name;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use nix::sys::inotify::Inotify;

use super::network::Pipe;
use super::virtual_time::{World, world};
use super::watched::Watched;
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
        match stream {
            Async::Kernel(stream) => Self::Kernel(stream.into()),
            Async::Simulated(..) => unreachable!("no socket is simulated by a descriptor"),
        }
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

impl TryFrom<std::net::TcpListener> for TcpListener {
    type Error = io::Error;

    fn try_from(listener: std::net::TcpListener) -> io::Result<Self> {
        smol::net::TcpListener::try_from(listener).map(Self)
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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

/// A kernel descriptor. Of them a simulation has the inotify instances of its own disk; the callers of others rely on
/// their timers.
#[derive(Debug)]
pub enum Async<T> {
    Kernel(smol::Async<T>),
    Simulated(T, Arc<Watched>),
}

impl<T: AsFd> Async<T> {
    pub fn new(source: T) -> io::Result<Self> {
        match world() {
            Some(world) => Self::simulated(source, &world),
            None => smol::Async::new(source).map(Self::Kernel),
        }
    }

    pub fn new_nonblocking(source: T) -> io::Result<Self> {
        match world() {
            Some(world) => Self::simulated(source, &world),
            None => smol::Async::new_nonblocking(source).map(Self::Kernel),
        }
    }

    fn simulated(source: T, world: &World) -> io::Result<Self> {
        if type_name::<T>() != type_name::<Inotify>() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let watched = world.watches.add(&source)?;
        Ok(Self::Simulated(source, watched))
    }
}

impl<T> Async<T> {
    pub fn get_ref(&self) -> &T {
        match self {
            Self::Kernel(kernel) => kernel.get_ref(),
            Self::Simulated(source, _) => source,
        }
    }

    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.readable().await,
            Self::Simulated(_, watched) => poll_fn(|context| watched.poll_readable(context)).await,
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(kernel) => kernel.writable().await,
            Self::Simulated(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl<T> AsyncRead for Async<T>
where
    smol::Async<T>: AsyncRead + Unpin,
    T: Unpin,
{
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Kernel(kernel) => Pin::new(kernel).poll_read(context, out),
            Self::Simulated(..) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}

impl<T> AsyncWrite for Async<T>
where
    smol::Async<T>: AsyncWrite + Unpin,
    T: Unpin,
{
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Kernel(kernel) => Pin::new(kernel).poll_write(context, bytes),
            Self::Simulated(..) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Kernel(kernel) => Pin::new(kernel).poll_flush(context),
            Self::Simulated(..) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Kernel(kernel) => Pin::new(kernel).poll_close(context),
            Self::Simulated(..) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }
}
