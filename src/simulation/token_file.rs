//! Requests carry the present token of the kubeconfig's `tokenFile`.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::api_server::ADDRESS;
use super::watches::{api_server, ask_for_lease};
use crate::platform::apiserver::{Client, Gate, Opening, Rank};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt::{self, TestFolder};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn rotated_token_is_used_by_the_next_request_after_a_minute() {
    let folder = TestFolder::new("token-file");
    let (kubeconfig, file) = (folder.0.join("kubeconfig"), folder.0.join("token"));
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{ADDRESS}")}}],
        "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    fs::write(&kubeconfig, content.to_string()).unwrap();
    let ended = rt::simulate(1, move |world| async move {
        let api = api_server(&world, 1);
        api.start();
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        let client = Client::behind(gate, kubeconfig, Dialer::of_server(ProxySettings::default()));
        let rotate = |token: &str| fs::write(&file, token).unwrap();
        let sent = async |wait: Duration| {
            rt::sleep(wait).await;
            let begun = rt::now();
            assert_eq!(ask_for_lease(&client).await.code(), Some(404));
            assert!(rt::elapsed(begun) < Duration::from_secs(3));
            api.authorization.take()
        };
        rotate("first\n");
        assert_eq!(sent(Duration::ZERO).await, "Bearer first");
        rotate("second\n");
        assert_eq!(sent(Duration::ZERO).await, "Bearer first");
        assert_eq!(sent(MINUTE).await, "Bearer second");
        // A file that cannot be read leaves the last token, and is read again by the next request.
        rotate("");
        assert_eq!(sent(MINUTE).await, "Bearer second");
        rotate("third");
        assert_eq!(sent(Duration::ZERO).await, "Bearer third");
        // So does one that hangs.
        world.disk.set(100 * MINUTE);
        assert_eq!(sent(MINUTE).await, "Bearer third");
        rotate("fourth");
        assert_eq!(sent(MINUTE).await, "Bearer third");
        world.disk.set(Duration::ZERO);
        for _ in 0..100 {
            sent(MINUTE).await;
        }
        assert_eq!(sent(MINUTE).await, "Bearer fourth");
        client.traffic().connections()
    });
    assert_eq!(ended, Ok(1));
}
