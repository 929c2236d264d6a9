//! Calls against tonic, as client and as server.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use coracle::platform::rpc::{Client, Error, Handler, Reply, Server, ServerLimits, handler};
use coracle::platform::rt;
use coracle::protocol::grpc::{Code, Status};
use k8s_cri::v1::image_service_server::{ImageService, ImageServiceServer};
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use k8s_cri::v1::*;
use prost::Message;

const LONG: Duration = Duration::from_secs(20);

/// A directory that is removed with its test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("coracle-judge-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs `test` under tokio while a thread serves `handler` on the socket.
fn beside_server(path: &Path, handler: fn() -> Handler, test: impl Future<Output = ()>) {
    let (done, ended) = async_channel::bounded::<()>(1);
    let (bound, listening) = std::sync::mpsc::channel();
    let path = path.to_owned();
    let serving = thread::spawn(move || {
        rt::block_on(async {
            let server = Server::bind(&path).unwrap().with_limits(ServerLimits::large());
            bound.send(()).unwrap();
            let until = async {
                let _ = ended.recv().await;
            };
            let serving = async {
                server.serve(handler()).await;
            };
            rt::either(serving, until).await;
        });
    });
    listening.recv().unwrap();
    tokio_runtime().block_on(test);
    drop(done);
    serving.join().unwrap();
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn tonic_client(path: &Path) -> RuntimeServiceClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("unix://{}", path.display())).unwrap();
    RuntimeServiceClient::new(endpoint.connect().await.unwrap())
}

fn runtime() -> Handler {
    handler(|request| async move {
        match request.method.as_str() {
            "/runtime.v1.RuntimeService/Version" => {
                let asked = VersionRequest::decode(&*request.message).unwrap();
                Ok(Reply::Message(VersionResponse { version: asked.version, ..Default::default() }.encode_to_vec()))
            }
            "/runtime.v1.RuntimeService/GetContainerEvents" => {
                let (sender, receiver) = async_channel::bounded(500);
                for n in 0..200 {
                    let id = format!("{n}-{}", "x".repeat(1000));
                    let event = ContainerEventResponse { container_id: id, ..Default::default() };
                    sender.try_send(Ok(event.encode_to_vec())).unwrap();
                }
                sender.try_send(Err(Status::new(Code::Aborted, "enough \u{2603} 100%"))).unwrap();
                Ok(Reply::Stream(receiver))
            }
            "/runtime.v1.RuntimeService/StopContainer" => {
                std::future::pending::<()>().await;
                Err(Status::ok())
            }
            other => Err(Status::new(Code::Unimplemented, format!("no {other}"))),
        }
    })
}

#[test]
fn tonic_as_client_gets_answers() {
    let directory = Directory::new("client");
    beside_server(&directory.socket(), runtime, async {
        let client = tonic_client(&directory.socket()).await;
        for len in [0, 1, 20_000, 1_000_000] {
            let asked = VersionRequest { version: "v".repeat(len) };
            let answer = client.clone().version(asked.clone()).await.unwrap().into_inner();
            assert!(answer.version == asked.version);
        }
        let calls: Vec<_> = (0..150)
            .map(|n| {
                let mut client = client.clone();
                async move { client.version(VersionRequest { version: n.to_string() }).await }
            })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap().into_inner().version, n.to_string());
        }
    });
}

#[test]
fn tonic_as_client_gets_errors_streams_and_deadlines() {
    let directory = Directory::new("streams");
    beside_server(&directory.socket(), runtime, async {
        let mut client = tonic_client(&directory.socket()).await;
        let error = client.list_containers(ListContainersRequest::default()).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unimplemented);
        assert_eq!(error.message(), "no /runtime.v1.RuntimeService/ListContainers");

        let mut events = client.get_container_events(GetEventsRequest {}).await.unwrap().into_inner();
        for n in 0..200 {
            let event = events.message().await.unwrap().unwrap();
            assert!(event.container_id.starts_with(&format!("{n}-")));
        }
        let error = events.message().await.unwrap_err();
        assert_eq!((error.code(), error.message()), (tonic::Code::Aborted, "enough \u{2603} 100%"));

        let mut stop = tonic::Request::new(StopContainerRequest::default());
        stop.set_timeout(Duration::from_millis(50));
        assert!(client.stop_container(stop).await.is_err());
        // The connection survives the cancelled call.
        assert!(client.version(VersionRequest::default()).await.is_ok());
    });
}

struct Images;

#[tonic::async_trait]
impl ImageService for Images {
    async fn list_images(
        &self,
        request: tonic::Request<ListImagesRequest>,
    ) -> Result<tonic::Response<ListImagesResponse>, tonic::Status> {
        let count = request.into_inner().filter.and_then(|filter| filter.image?.image.parse().ok()).unwrap_or(0);
        let images = (0..count).map(|n| Image { id: format!("{n}-{}", "x".repeat(1000)), ..Default::default() });
        Ok(tonic::Response::new(ListImagesResponse { images: images.collect() }))
    }

    async fn image_status(
        &self,
        _: tonic::Request<ImageStatusRequest>,
    ) -> Result<tonic::Response<ImageStatusResponse>, tonic::Status> {
        Err(tonic::Status::not_found("no such image: \u{e9}\n100%"))
    }

    async fn pull_image(
        &self,
        request: tonic::Request<PullImageRequest>,
    ) -> Result<tonic::Response<PullImageResponse>, tonic::Status> {
        let timeout = request.metadata().get("grpc-timeout").unwrap().to_str().unwrap().to_owned();
        Ok(tonic::Response::new(PullImageResponse { image_ref: timeout }))
    }

    async fn remove_image(
        &self,
        _: tonic::Request<RemoveImageRequest>,
    ) -> Result<tonic::Response<RemoveImageResponse>, tonic::Status> {
        std::future::pending().await
    }

    async fn image_fs_info(
        &self,
        _: tonic::Request<ImageFsInfoRequest>,
    ) -> Result<tonic::Response<ImageFsInfoResponse>, tonic::Status> {
        Ok(tonic::Response::new(ImageFsInfoResponse::default()))
    }
}

/// Runs `test` with a client of a tonic server, which serves in its own thread.
fn with_tonic_server(name: &str, test: impl AsyncFnOnce(Client)) {
    let directory = Directory::new(name);
    let path = directory.socket();
    let (done, ended) = async_channel::bounded::<()>(1);
    let (bound, listening) = std::sync::mpsc::channel();
    let serving = thread::spawn(move || {
        tokio_runtime().block_on(async {
            let listener = tokio::net::UnixListener::bind(path).unwrap();
            bound.send(()).unwrap();
            let incoming = smol::stream::unfold(listener, async |listener| {
                let accepted = listener.accept().await.map(|(stream, _)| stream);
                Some((accepted, listener))
            });
            let until = async {
                let _ = ended.recv().await;
            };
            let server = tonic::transport::Server::builder().add_service(ImageServiceServer::new(Images));
            server.serve_with_incoming_shutdown(Box::pin(incoming), until).await.unwrap();
        });
    });
    listening.recv().unwrap();
    rt::block_on(async {
        let client = Client::with_limit(&format!("unix://{}", directory.socket().display()), 16 << 20);
        test(client).await;
        // The client's task must run once more to close the connection.
        rt::yield_now().await;
    });
    drop(done);
    serving.join().unwrap();
}

#[test]
fn tonic_as_server_is_understood() {
    with_tonic_server("server", async |client: Client| {
        for count in [0, 1, 100, 5000] {
            let image = Some(ImageSpec { image: count.to_string(), ..Default::default() });
            let request = ListImagesRequest { filter: Some(ImageFilter { image }) }.encode_to_vec();
            let answer = client.unary("/runtime.v1.ImageService/ListImages", request, LONG).await.unwrap();
            let images = ListImagesResponse::decode(&*answer).unwrap().images;
            assert_eq!(images.len(), count);
            assert!(images.iter().enumerate().all(|(n, image)| image.id.starts_with(&format!("{n}-"))));
        }
        let calls: Vec<_> = (0..300)
            .map(|_| {
                let client = client.clone();
                rt::spawn(async move { client.unary("/runtime.v1.ImageService/ImageFsInfo", Vec::new(), LONG).await })
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap().is_empty());
        }
    });
}

#[test]
fn tonic_as_server_returns_errors_and_the_connection_survives_a_deadline() {
    with_tonic_server("errors", async |client: Client| {
        let call = async |method: &'static str, timeout| client.unary(method, Vec::new(), timeout).await;
        let error = call("/runtime.v1.ImageService/ImageStatus", LONG).await.unwrap_err();
        assert_eq!(error.status(), Some(&Status::new(Code::NotFound, "no such image: \u{e9}\n100%")));
        let error = call("/runtime.v1.ImageService/NoSuch", LONG).await.unwrap_err();
        assert_eq!(error.status().unwrap().code, Code::Unimplemented);
        let mut watch = client.watch();
        // tonic reads the client's timeout, and may time out first.
        match call("/runtime.v1.ImageService/RemoveImage", Duration::from_millis(50)).await.unwrap_err() {
            Error::DeadlineExceeded => {}
            Error::Status(status) => assert!(matches!(status.code, Code::Cancelled | Code::DeadlineExceeded)),
            other => panic!("{other:?}"),
        }
        let answer = call("/runtime.v1.ImageService/PullImage", LONG).await.unwrap();
        let timeout = PullImageResponse::decode(&*answer).unwrap().image_ref;
        assert!(timeout.ends_with('m') && timeout.len() > 4, "{timeout}");
        let silent = rt::either(async { Some(watch.changed().await) }, std::future::ready(None)).await;
        assert_eq!(silent, None, "the connection was lost");
    });
}
