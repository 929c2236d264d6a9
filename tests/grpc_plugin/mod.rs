//! A gRPC server like the plugins written for the upstream kubelet, using tonic: on a Unix socket, in its own thread.
//! Dropping [`Served`] ends it like a killed process.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Maps a method and request bytes to response bytes.
pub(crate) type Answerer = Arc<dyn Fn(String, Vec<u8>) -> BoxFuture<Vec<u8>, Status> + Send + Sync>;

pub(crate) struct Served {
    done: Option<async_channel::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

/// Serves in a thread that calls `enter` first, for example to join a namespace.
pub(crate) fn serve(socket: &Path, routes: Routes, enter: impl FnOnce() + Send + 'static) -> Served {
    let (done, ended) = async_channel::bounded::<()>(1);
    let (bound, listening) = std::sync::mpsc::channel();
    let at = socket.to_owned();
    let serving = thread::spawn(move || {
        enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let _ = std::fs::remove_file(&at);
            let listener = tokio::net::UnixListener::bind(&at).unwrap();
            bound.send(()).unwrap();
            let incoming = smol::stream::unfold(listener, async |listener| {
                let accepted = listener.accept().await.map(|(stream, _)| stream);
                Some((accepted, listener))
            });
            let server = tonic::transport::Server::builder().add_routes(routes);
            let serve = async {
                server.serve_with_incoming(Box::pin(incoming)).await.unwrap();
            };
            let until = async {
                let _ = ended.recv().await;
            };
            smol::future::or(serve, until).await;
        });
        runtime.shutdown_background();
    });
    listening.recv().unwrap();
    Served { done: Some(done), serving: Some(serving) }
}

impl Drop for Served {
    /// The socket file remains.
    fn drop(&mut self) {
        self.done = None;
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) endpoint: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) supported_versions: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RegistrationStatus {
    #[prost(bool, tag = "1")]
    pub(crate) plugin_registered: bool,
    #[prost(string, tag = "2")]
    pub(crate) error: String,
}

/// The service through which the kubelet registers a plugin and reports the result.
#[derive(Clone)]
pub(crate) struct Registration;

impl Name for Registration {
    const NAME: &'static str = "pluginregistration.Registration";
}

pub(crate) trait Name: Clone + Send + Sync + 'static {
    const NAME: &'static str;
}

/// A service that passes all methods to one function.
#[derive(Clone)]
pub(crate) struct Named<N>(Answerer, PhantomData<N>);

impl<N> Named<N> {
    pub(crate) fn new(answer: Answerer) -> Self {
        Self(answer, PhantomData)
    }
}

impl<N: Name> NamedService for Named<N> {
    const NAME: &'static str = N::NAME;
}

type Body = tonic::body::Body;

impl<N: Name> Service<http::Request<Body>> for Named<N> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let method = Method(method, Arc::clone(&self.0));
        Box::pin(async move { Ok(tonic::server::Grpc::new(Bytes).unary(method, request).await) })
    }
}

struct Method(String, Answerer);

impl Service<Request<Vec<u8>>> for Method {
    type Response = Response<Vec<u8>>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        let answered = (self.1)(self.0.clone(), request.into_inner());
        Box::pin(async move { answered.await.map(Response::new) })
    }
}

struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(buf, &item);
        Ok(())
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; prost::bytes::Buf::remaining(buf)];
        prost::bytes::Buf::copy_to_slice(buf, &mut bytes);
        Ok(Some(bytes))
    }
}
