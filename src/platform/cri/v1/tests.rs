//! Compares the messages with the `k8s-cri` crate, which is generated from the published proto.
//!
//! Its proto is that of CRI API 0.32; the vectors at the end cover later additions.

use k8s_cri::v1 as theirs;
use serde_json::{Map, Value};

use super::*;
use crate::protocol::protobuf::random::Random;
use crate::protocol::protobuf::{Message, decode, encode};
use crate::types::sorted::SortedSet;

/// Fields that `k8s-cri` lacks.
const NEWER: [&str; 6] =
    ["ImageSpec.image_ref", "image_sub_path", "io", "psi", "stop_signal", "user_namespaces_host_network"];

/// Fields that only `k8s-cri` has.
const LEFT_OUT: [&str; 1] = ["windows"];

const ROUNDS: u32 = 200;

/// Checks that both types have the same field names, and that each decodes what the other encodes.
fn judge<Ours, Theirs>(name: &str)
where
    Ours: Message + Default + Clone + PartialEq + std::fmt::Debug,
    Theirs: prost::Message + Default + PartialEq + serde::Serialize + std::fmt::Debug,
{
    check_names(name, &Ours::default(), &serde_json::to_value(Theirs::default()).unwrap());
    let mut random = Random(name.bytes().map(u64::from).sum());
    for _ in 0..ROUNDS {
        let mut ours = Ours::default();
        random.fill(&mut ours, 4);
        let bytes = encode(&ours);
        assert_eq!(decode::<Ours>(&bytes).as_ref(), Ok(&ours), "{name}");

        let theirs = Theirs::decode(bytes.as_slice()).unwrap();
        check_values(name, &ours.json(), &serde_json::to_value(&theirs).unwrap());

        // The other way round: bytes from `k8s-cri` decode to the same values.
        let known: Ours = decode(&theirs.encode_to_vec()).unwrap();
        assert_eq!(Theirs::decode(encode(&known).as_slice()).unwrap(), theirs, "{name}");
        check_values(name, &known.json(), &serde_json::to_value(&theirs).unwrap());
    }
}

fn is_newer(message: &str, field: &str) -> bool {
    NEWER.contains(&field) || NEWER.contains(&format!("{message}.{field}").as_str())
}

#[track_caller]
fn check_names(message: &str, ours: &dyn Message, theirs: &Value) {
    let ours: SortedSet<_> = ours.fields().iter().map(|(_, name)| name.trim_start_matches("r#")).collect();
    let theirs: SortedSet<_> = theirs.as_object().unwrap().keys().map(String::as_str).collect();
    let left_out: Vec<_> = theirs.difference(&ours).filter(|name| !LEFT_OUT.contains(name)).collect();
    assert!(left_out.is_empty(), "{message} lacks {left_out:?}");
    let newer: Vec<_> = ours.difference(&theirs).filter(|name| !is_newer(message, name)).collect();
    assert!(newer.is_empty(), "{message} has {newer:?}, unknown to the judge");
}

/// Our JSON omits defaults; that of `k8s-cri` has all fields.
#[track_caller]
fn check_values(at: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => check_objects(at, ours, theirs),
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{at}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                check_values(at, ours, theirs);
            }
        }
        (Value::String(ours), Value::Array(theirs)) => {
            let bytes: Vec<u64> = ours.bytes().map(u64::from).collect();
            assert_eq!(Some(bytes), theirs.iter().map(Value::as_u64).collect(), "{at}");
        }
        _ => assert_eq!(ours, theirs, "{at}"),
    }
}

#[track_caller]
fn check_objects(at: &str, ours: &Map<String, Value>, theirs: &Map<String, Value>) {
    for (name, value) in theirs {
        match ours.get(name) {
            Some(same) => check_values(&format!("{at}.{name}"), same, value),
            None => assert!(is_default(value), "{at}.{name} is absent instead of {value}"),
        }
    }
    for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
        let inside_image = theirs.contains_key("user_specified_image");
        assert!(is_newer(if inside_image { "ImageSpec" } else { "" }, name), "{at}.{name} is unknown to the judge");
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(value) => value.is_empty(),
    }
}

macro_rules! judged {
    ($($test:ident: $($name:ident)*;)*) => {
        $(
            #[test]
            fn $test() {
                $( judge::<$name, theirs::$name>(stringify!($name)); )*
            }
        )*

        const JUDGED: &[&str] = &[$($( stringify!($name) ),*),*];
    };
}

judged! {
    sandbox_messages_agree_with_the_judge:
        DnsConfig LinuxPodSandboxConfig LinuxPodSandboxStatus ListPodSandboxRequest ListPodSandboxResponse Namespace
        PodIp PodSandbox PodSandboxConfig PodSandboxFilter PodSandboxMetadata PodSandboxNetworkStatus
        PodSandboxStateValue PodSandboxStatus PodSandboxStatusRequest PodSandboxStatusResponse PortMapping
        RemovePodSandboxRequest RemovePodSandboxResponse RunPodSandboxRequest RunPodSandboxResponse
        StopPodSandboxRequest StopPodSandboxResponse;
    container_messages_agree_with_the_judge:
        AttachRequest AttachResponse CdiDevice CheckpointContainerRequest CheckpointContainerResponse Container
        ContainerConfig ContainerFilter ContainerMetadata ContainerStateValue ContainerStatus ContainerStatusRequest
        ContainerStatusResponse CreateContainerRequest CreateContainerResponse Device ExecRequest ExecResponse
        ExecSyncRequest ExecSyncResponse KeyValue LinuxContainerConfig ListContainersRequest ListContainersResponse
        Mount PortForwardRequest PortForwardResponse RemoveContainerRequest RemoveContainerResponse
        ReopenContainerLogRequest ReopenContainerLogResponse StartContainerRequest StartContainerResponse
        StopContainerRequest StopContainerResponse;
    image_messages_agree_with_the_judge:
        AuthConfig FilesystemIdentifier FilesystemUsage Image ImageFilter ImageFsInfoRequest ImageFsInfoResponse
        ImageSpec ImageStatusRequest ImageStatusResponse ListImagesRequest ListImagesResponse PullImageRequest
        PullImageResponse RemoveImageRequest RemoveImageResponse;
    resource_messages_agree_with_the_judge:
        ContainerResources HugepageLimit LinuxContainerResources UpdateContainerResourcesRequest
        UpdateContainerResourcesResponse;
    security_messages_agree_with_the_judge:
        Capability ContainerUser IdMapping LinuxContainerSecurityContext LinuxContainerUser
        LinuxSandboxSecurityContext NamespaceOption SeLinuxOption SecurityProfile UserNamespace;
    runtime_messages_agree_with_the_judge:
        ContainerEventResponse GetEventsRequest LinuxRuntimeConfiguration NetworkConfig RuntimeCondition RuntimeConfig
        RuntimeConfigRequest RuntimeConfigResponse RuntimeFeatures RuntimeHandler RuntimeHandlerFeatures RuntimeStatus
        StatusRequest StatusResponse UpdateRuntimeConfigRequest UpdateRuntimeConfigResponse VersionRequest
        VersionResponse;
    stats_messages_agree_with_the_judge:
        ContainerAttributes ContainerStats ContainerStatsFilter ContainerStatsRequest ContainerStatsResponse CpuUsage
        LinuxPodSandboxStats ListContainerStatsRequest ListContainerStatsResponse ListPodSandboxStatsRequest
        ListPodSandboxStatsResponse MemoryUsage NetworkInterfaceUsage NetworkUsage PodSandboxAttributes
        PodSandboxStats PodSandboxStatsFilter PodSandboxStatsRequest PodSandboxStatsResponse ProcessUsage SwapUsage;
}

/// Messages that `k8s-cri` lacks, which the vectors below cover, and a part of another message.
const UNJUDGED: [&str; 6] = [
    "IoUsage",
    "PsiData",
    "PsiStats",
    "SandboxOfEvent",
    "UpdatePodSandboxResourcesRequest",
    "UpdatePodSandboxResourcesResponse",
];

#[test]
fn every_message_is_compared() {
    let sources = [
        include_str!("container.rs"),
        include_str!("events.rs"),
        include_str!("image.rs"),
        include_str!("resources.rs"),
        include_str!("runtime_status.rs"),
        include_str!("sandbox.rs"),
        include_str!("sandbox_status.rs"),
        include_str!("security.rs"),
        include_str!("stats.rs"),
    ];
    let lines = sources.iter().flat_map(|source| source.lines());
    let declared = lines.filter_map(|line| line.strip_prefix("    pub struct ")?.split_once(' '));
    let declared: SortedSet<_> = declared.map(|(name, _)| name).collect();
    let covered: SortedSet<_> = JUDGED.iter().chain(&UNJUDGED).copied().collect();
    assert_eq!(declared, covered);
}

/// Asserts that `message` encodes to the bytes that `protoc` produces from the proto of CRI API 0.36, and back.
#[track_caller]
fn vector<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(encode(message), bytes);
    assert_eq!(decode::<M>(bytes).as_ref(), Ok(message));
}

#[test]
fn newer_container_fields_match_the_proto() {
    vector(&Mount { image_sub_path: "a/b".to_owned(), ..Mount::default() }, b"\x52\x03a/b");
    vector(&ImageSpec { image_ref: "x".to_owned(), ..ImageSpec::default() }, b"\xa2\x01\x01x");
    let stop_signal = Signal::from_name("SIGTERM").unwrap();
    vector(&ContainerConfig { stop_signal, ..ContainerConfig::default() }, b"\x90\x01\x17");
    let stop_signal = Signal::from_name("SIGRTMAX").unwrap();
    vector(&ContainerStatus { stop_signal, ..ContainerStatus::default() }, b"\x98\x01\x41");
    vector(&KeyValue { key: String::new(), value: vec![0xff, 0] }, b"\x12\x02\xff\x00");
    vector(&RuntimeFeatures { user_namespaces_host_network: true, ..RuntimeFeatures::default() }, b"\x10\x01");
}

#[test]
fn newer_pressure_fields_match_the_proto() {
    let full = PsiData { total: 2, avg10: 0.5, avg60: 1.0, avg300: -2.0 };
    let psi = PsiStats { full: Some(full), some: Some(PsiData::default()) };
    let io = IoUsage { timestamp: 1, psi: Some(psi) };
    vector(
        &ContainerStats { io: Some(io), ..ContainerStats::default() },
        b"\x32\x25\x08\x01\x12\x21\x0a\x1d\x08\x02\x11\0\0\0\0\0\0\xe0\x3f\x19\0\0\0\0\0\0\xf0\x3f\
          \x21\0\0\0\0\0\0\0\xc0\x12\0",
    );
    let io = IoUsage { timestamp: 1, psi: None };
    vector(&LinuxPodSandboxStats { io: Some(io), ..LinuxPodSandboxStats::default() }, b"\x32\x02\x08\x01");
    let data = PsiData { total: 300, ..PsiData::default() };
    let psi = PsiStats { some: Some(data.clone()), ..PsiStats::default() };
    vector(&CpuUsage { psi: Some(psi), ..CpuUsage::default() }, b"\x22\x05\x12\x03\x08\xac\x02");
    let psi = PsiStats { full: Some(data), ..PsiStats::default() };
    vector(&MemoryUsage { psi: Some(psi), ..MemoryUsage::default() }, b"\x42\x05\x0a\x03\x08\xac\x02");
}

#[test]
fn sandbox_resize_messages_match_the_proto() {
    let overhead = LinuxContainerResources { cpu_shares: 2, ..LinuxContainerResources::default() };
    let resources =
        LinuxContainerResources { cpu_shares: 1024, memory_limit_in_bytes: -1, ..LinuxContainerResources::default() };
    let request = UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: "p".to_owned(),
        overhead: Some(overhead),
        resources: Some(resources),
    };
    vector(&request, b"\x0a\x01p\x12\x02\x18\x02\x1a\x0e\x18\x80\x08\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    vector(&UpdatePodSandboxResourcesResponse {}, b"");
}

#[test]
fn debug_output_hides_secrets() {
    let secret = || Secret("hunter2".to_owned());
    let auth = AuthConfig {
        username: "robot".to_owned(),
        password: secret(),
        auth: secret(),
        identity_token: secret(),
        registry_token: secret(),
        ..AuthConfig::default()
    };
    let request = PullImageRequest { auth: Some(auth), ..PullImageRequest::default() };
    let shown = format!("{request:?}");
    assert!(shown.contains("robot") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn signal_names_and_numbers_match() {
    for number in 1..=65 {
        assert_eq!(Signal(number).name().and_then(Signal::from_name), Some(Signal(number)));
    }
    assert_eq!(Signal(34).name(), Some("SIGXFSZ"));
    assert_eq!(Signal(51).name(), Some("SIGRTMAX-14"));
    assert_eq!([Signal(0).name(), Signal(66).name(), Signal(-1).name()], [None; 3]);
}
