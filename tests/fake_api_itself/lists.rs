//! LIST: pages, selectors, versions.

use serde_json::json;

use super::client::Client;
use super::{WEB, config_map, pod, start};

#[test]
fn list_has_a_version_and_items_without_kind() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    let list = client.get("/api/v1/pods").json();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(api.look(|world| world.store.version()), version);
    assert_eq!((&list["items"][0]["kind"], &list["items"][0]["metadata"]["name"]), (&json!(null), &json!("web")));
    assert_eq!(api.list("/api/v1/pods").len(), 1);
}

#[test]
fn lists_are_filtered_by_field_and_label_selectors() {
    let api = start();
    api.create(&pod("a", Some("n1")));
    let mut labelled = pod("b", Some("n2"));
    labelled["metadata"]["labels"] = json!({ "app": "x" });
    api.create(&labelled);
    let mut client = Client::admin(&api);
    let mut names = |query: &str| {
        let list = client.get(&format!("/api/v1/pods?{query}")).json();
        let items = list["items"].as_array().unwrap();
        items.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("fieldSelector=spec.nodeName%3Dn1"), ["a"]);
    assert_eq!(names("fieldSelector=spec.nodeName!%3Dn1,metadata.name=b"), ["b"]);
    assert_eq!(names("labelSelector=app%3Dx"), ["b"]);
    assert_eq!(names("labelSelector=!app"), ["a"]);
    assert_eq!(
        client.get("/api/v1/pods?fieldSelector=spec.color%3Dred").message(),
        "field label not supported: spec.color"
    );
}

#[test]
fn all_pages_are_of_one_version() {
    let api = start();
    for name in ["a", "b", "c"] {
        api.create(&config_map(name, "1"));
    }
    let mut client = Client::admin(&api);
    let first = client.get("/api/v1/configmaps?limit=2").json();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]), (2, &json!(1)));
    api.create(&config_map("d", "1"));
    api.patch("/api/v1/namespaces/default/configmaps/c", &json!({ "data": { "key": "2" } }));
    let next = first["metadata"]["continue"].as_str().unwrap();
    let second = client.get(&format!("/api/v1/configmaps?limit=2&continue={next}")).json();
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!((second["items"].as_array().unwrap().len(), &second["items"][0]["data"]["key"]), (1, &json!("1")));
    assert_eq!(second["metadata"]["continue"], json!(null));
}

#[test]
fn expired_page_is_refused_with_an_inconsistent_continue_token() {
    let api = start();
    for name in ["a", "b", "c"] {
        api.create(&config_map(name, "1"));
    }
    let mut client = Client::admin(&api);
    let first = client.get("/api/v1/configmaps?limit=2").json();
    api.create(&config_map("d", "1"));
    api.compact();
    let next = first["metadata"]["continue"].as_str().unwrap();
    let refused = client.get(&format!("/api/v1/configmaps?limit=2&continue={next}"));
    assert_eq!((refused.status, &refused.json()["reason"]), (410, &json!("Expired")));
    let refused = refused.json();
    let next = refused["metadata"]["continue"].as_str().unwrap();
    let rest = client.get(&format!("/api/v1/configmaps?continue={next}")).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
}

#[test]
fn list_can_be_of_an_older_but_no_future_version() {
    let api = start();
    let object = api.create(&pod("web", None));
    api.delete(WEB);
    let mut client = Client::admin(&api);
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let list = client.get(&format!("/api/v1/pods?resourceVersion={version}&resourceVersionMatch=Exact")).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let list = client.get("/api/v1/pods?resourceVersion=0").json();
    assert_eq!(list["items"].as_array().unwrap().len(), 0);
    api.pass_versions(10);
    let now = api.look(|world| world.store.version());
    let answer = client.get(&format!("/api/v1/pods?resourceVersion={}", now + 7));
    let message = format!("Timeout: Too large resource version: {}, current: {now}", now + 7);
    assert_eq!((answer.status, answer.message()), (504, message));
}
