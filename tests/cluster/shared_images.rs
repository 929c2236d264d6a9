//! Images that the node gives to other nodes.

use std::fs;

use super::fake_api::Options;
use super::serving::{ALLOWS_ALL, Served};

const CONTENT: &str = "content of a layer";
const HEX: &str = "10e207e698f618d3d8560f31afec47db1aa22806ed67e2ca82fb7aae0546b63e";

fn start(text: &str) -> Served {
    let mut served = Served::new(Options::default());
    let config = served.path("coracle.yaml");
    fs::write(&config, text).unwrap();
    let kept = served.path("pods/coracle/share");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join(HEX), CONTENT).unwrap();
    served.start(ALLOWS_ALL, &["--coracle-config", &config.display().to_string()]);
    served
}

#[test]
fn images_are_given_to_nodes_with_their_certificates_only() {
    let served = start("images: {fetch: resumable, share: true}\n");
    let node = served.client("system:node:node-b", &["system:nodes"]);
    let blob = format!("/v2/library/app/blobs/sha256:{HEX}");
    assert_eq!(served.place.get("/v2/", Some(&node)), (200, "{}".to_owned()));
    assert_eq!(served.place.get(&blob, Some(&node)), (200, CONTENT.to_owned()));
    let part = served.place.reach(Some(&node)).get(&blob, "Range: bytes=11-\r\n");
    assert_eq!(part, (206, "a layer".to_owned()));
    assert_eq!(served.place.get("/v2/library/app/manifests/latest", Some(&node)).0, 404);
    let others =
        [served.admin(), served.client("system:node:node-b", &["viewers"]), served.client("viewer", &["system:nodes"])];
    for path in [&*blob, "/v2/"] {
        assert_eq!(served.place.get(path, None).0, 401, "{path}");
        for other in &others {
            assert_eq!(served.place.get(path, Some(other)).0, 403, "{path}");
        }
    }
}

#[test]
fn node_that_does_not_share_gives_nothing() {
    let served = start("images: {fetch: resumable}\n");
    let node = served.client("system:node:node-b", &["system:nodes"]);
    assert_eq!(served.place.get(&format!("/v2/app/blobs/sha256:{HEX}"), Some(&node)).0, 404);
}
