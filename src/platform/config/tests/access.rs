//! Credentials, the kubelet's server, and pods from a URL.

use super::*;

#[test]
fn credential_providers_come_from_a_file_or_directory() {
    let provider = |name: &str| {
        format!(
            "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
             - {{name: {name}, matchImages: [r.io], defaultCacheDuration: 1m, \
             apiVersion: credentialprovider.kubelet.k8s.io/v1}}\n"
        )
    };
    let dir = TempDir::new();
    let file = dir.write("providers/b.yaml", &provider("b"));
    dir.write("providers/a.yml", &provider("a"));
    dir.write("providers/readme", "not one of them");
    let folder = dir.0.join("providers").display().to_string();
    let programs = dir.0.display().to_string();
    let given = |config: &str| {
        let flags = ["--image-credential-provider-config", config, "--image-credential-provider-bin-dir", &programs];
        let (config, warnings) = loaded(&flags);
        let names: Vec<String> = config.images.credential_providers.into_iter().map(|provider| provider.name).collect();
        (names, warnings)
    };
    let missing = |name: &str| format!("credential provider {name} is missing: {programs}/{name}");
    assert_eq!(given(&file), (vec!["b".to_owned()], vec![missing("b")]));
    assert_eq!(given(&folder).0, ["a", "b"]);
    let again = dir.write("providers/c.json", &provider("a"));
    let flags = ["--image-credential-provider-config", &folder, "--image-credential-provider-bin-dir", &programs];
    assert_eq!(refused(&flags), format!("{again}: providers[0].name: there is another provider a"));
    assert_eq!(
        refused(&["--image-credential-provider-config", &file]),
        "--image-credential-provider-config: requires --image-credential-provider-bin-dir"
    );
}

#[test]
fn page_is_off_without_a_port_and_for_this_machine_alone_without_an_address() {
    let page = |line: &[&str]| loaded(line).0.health.status_page.map(|address| address.to_string());
    assert_eq!(page(&[]), None);
    assert_eq!(page(&["--page-address=0.0.0.0"]), None);
    assert_eq!(page(&["--page-port=0"]), None);
    assert_eq!(page(&["--page-port=4194"]).as_deref(), Some("127.0.0.1:4194"));
    assert_eq!(page(&["--page-port", "80", "--page-address", "fd00::7"]).as_deref(), Some("[fd00::7]:80"));
    for (line, message) in [
        ("--page-port=65536", "--page-port: expected a whole number from 0 to 65535, found 65536"),
        ("--page-address=here", "--page-address: expected an IP address, found \"here\""),
    ] {
        assert_eq!(refused(&[line]), message);
    }
}

#[test]
fn identity_settings_are_read() {
    let (config, _) = file_loaded(
        r#""rotateCertificates":true,"serverTLSBootstrap":true,
           "authentication":{"x509":{"clientCAFile":"/etc/kubernetes/pki/ca.crt"}}"#,
    );
    let expected = Identity {
        rotate_certificates: true,
        serving: ServingIdentity::Cluster,
        client_ca_file: Some("/etc/kubernetes/pki/ca.crt".into()),
        ..Identity::default()
    };
    assert_eq!(config.identity, expected);
    let (config, _) = loaded(&["--tls-cert-file=/c", "--tls-private-key-file=/k", "--rotate-server-certificates"]);
    assert_eq!(config.identity.serving, ServingIdentity::Files { certificate: "/c".into(), key: "/k".into() });
}

#[test]
fn server_settings_are_read() {
    let (config, _) = file_loaded(
        r#""address":"::1","port":10350,"enableDebuggingHandlers":false,"readOnlyPort":10255,
           "enableSystemLogHandler":false,"enableProfilingHandler":false,"enableDebugFlagsHandler":false,"tlsMinVersion":"VersionTLS13","tlsCurvePreferences":[29],
           "tlsCipherSuites":["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"],
           "authentication":{"anonymous":{"enabled":true},"webhook":{"cacheTTL":"7s"}},
           "authorization":{"webhook":{"cacheAuthorizedTTL":"8s","cacheUnauthorizedTTL":"9s"}}"#,
    );
    let seconds = Duration::from_secs;
    let expected = ServerSettings {
        enabled: true,
        address: "[::1]:10350".parse().unwrap(),
        tls: TlsSettings {
            only_1_3: true,
            cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()],
            curves: vec![29],
        },
        anonymous: true,
        token_ttl: Some(seconds(7)),
        authorization: Authorization::Webhook { allowed_ttl: seconds(8), refused_ttl: seconds(9) },
        read_only: Some("[::1]:10255".parse().unwrap()),
        system_logs: false,
        system_log_queries: false,
        profiling: false,
        debug_flags: false,
        debugging: false,
    };
    assert_eq!(config.identity.server, expected);
    let line = ["--enable-server=false", "--authentication-token-webhook=false", "--authorization-mode=AlwaysAllow"];
    let expected = ServerSettings {
        enabled: false,
        token_ttl: None,
        authorization: Authorization::AlwaysAllow,
        ..ServerSettings::default()
    };
    assert_eq!(loaded(&line).0.identity.server, expected);
    // As in the kubelet, empty values mean the defaults.
    let (config, _) = file_loaded(r#""port":0,"address":"","authorization":{"webhook":{"cacheAuthorizedTTL":"0s"}}"#);
    assert_eq!(config.identity.server, ServerSettings::default());
}

#[test]
fn pods_from_a_url_have_their_headers_and_who_vouches_for_them() {
    assert_eq!(loaded(&[]).0.static_pods.url, None);
    assert_eq!(loaded(&["--manifest-public-key=/key.pem", "--manifest-url="]).0.static_pods.url, None);
    let (config, warnings) = loaded(&[
        "--manifest-url=https://fleet.example/board.yaml",
        "--manifest-url-header=X-A:1, X-B: 2:3",
        "--manifest-url-header=X-A:4",
        "--http-check-frequency=1m",
        "--manifest-url-ca-file=/ca.crt",
        "--manifest-public-key=/key.pem",
    ]);
    assert_eq!(warnings, [""; 0]);
    let url = config.static_pods.url.unwrap();
    let header = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    assert_eq!(url.headers, [("X-A", "1"), ("X-A", "4"), ("X-B", "2:3")].map(header));
    assert_eq!((url.url.as_str(), url.every.as_secs()), ("https://fleet.example/board.yaml", 60));
    assert_eq!((url.authorities, url.public_key), (Some(PathBuf::from("/ca.crt")), Some(PathBuf::from("/key.pem"))));
    let dir = TempDir::new();
    let fields = r#""staticPodURL":"http://h:8080/","staticPodURLHeader":{"X-A":["1","2"]}"#;
    let url = loaded(&["--config", &dir.write("config.yaml", &document(fields))]).0.static_pods.url.unwrap();
    assert_eq!((url.headers.len(), url.every.as_secs()), (2, 20));
}

#[test]
fn invalid_urls_are_refused() {
    for (line, message) in [
        (
            &["--manifest-url=ftp://h/x"][..],
            "staticPodURL: expected http://HOST/PATH, https://HOST/PATH or oci://REGISTRY/NAME:TAG, without a user, found \"ftp://h/x\"",
        ),
        (
            &["--manifest-url=http://user:secret@h/x"],
            "staticPodURL: expected http://HOST/PATH, https://HOST/PATH or oci://REGISTRY/NAME:TAG, without a user, found \"http://h/x\"",
        ),
        (
            &["--manifest-url=oci://r/x:1", "--manifest-url-header=X-A:1"],
            "staticPodURL: headers and --manifest-url-ca-file are for http and https: for oci use hosts.toml",
        ),
        (&["--manifest-public-key=/k"], "--manifest-public-key: requires staticPodURL or --manifest-url"),
        (&["--manifest-url-header=x"], "--manifest-url-header: expected NAME:VALUE,..., found \"x\""),
        (
            &["--manifest-url=http://h/", "--manifest-url-header=a b:c"],
            "staticPodURLHeader.a b: expected the name and the value of a header",
        ),
    ] {
        assert_eq!(refused(line), message);
    }
}
