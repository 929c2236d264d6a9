//! Pods of the largest size that an API server stores, and what they take of the agent's memory.

use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::pod;

const PODS_THERE: u64 = 4;
/// Bytes of a pod's large field as text. etcd takes 1.5 MiB of an object.
const LARGE: usize = 1400 << 10;

/// What a pod of this shape takes once the agent is at rest, and at most per pod, in KiB. One pod comes after the other: how
/// much of their work overlaps depends on the machine.
fn measure(shape: &str, large: &dyn Fn() -> Value) -> (u64, u64) {
    let mut joined = Joined::new();
    // glibc would keep freed memory in the arena of each thread, and more of it the busier the machine is.
    joined.start_with("", |command| {
        command
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "131072")
            .env("MALLOC_TRIM_THRESHOLD_", "131072");
    });
    joined.wait_until_ready();
    let (_, before) = joined.memory();
    for number in 0..PODS_THERE {
        let mut object = pod(&format!("p{number}"), &json!({}));
        let (parent, key) = shape.split_once('.').unwrap();
        let parent = if parent == "container" { &mut object["spec"]["containers"][0] } else { &mut object[parent] };
        parent[key] = large();
        joined.api.create(&object);
        let path = format!("/api/v1/namespaces/default/pods/p{number}");
        joined.api.wait(&path, "the pod to run", |pod| pod["status"]["phase"] == "Running");
    }
    // Work that the pods' arrival has begun.
    joined.node.wait_until_at_rest();
    let (most, now) = joined.memory();
    let [most, now] = [most, now].map(|kib| kib.saturating_sub(before) / PODS_THERE);
    eprintln!("{shape}: {now} KiB of the agent's memory for a pod, {most} KiB at most");
    (now, most)
}

#[test]
fn pods_of_the_largest_size_take_the_memory_that_the_list_of_bounds_says() {
    let text = LARGE as u64 >> 10;
    // At rest and at most, in times of the text.
    let check = |shape: &str, limits: (u64, u64), large: &dyn Fn() -> Value| {
        let (now, most) = measure(shape, large);
        assert!(now < limits.0 * text && most < limits.1 * text, "{shape}: {now} and {most} KiB");
    };
    // One long string.
    check("metadata.annotations", (4, 6), &|| json!({"a/b": "x".repeat(LARGE)}));
    // Of six bytes each in the JSON of the API server. An event and the answer to a patch may be there at once.
    check("metadata.annotations", (4, 12), &|| json!({"a/b": "<".repeat(LARGE)}));
    // The smallest values, which take more as objects than as text.
    check("container.args", (5, 9), &|| Value::from(vec![json!("x"); LARGE / 4]));
    check("container.env", (3, 5), &|| Value::from(vec![json!({"name": "A"}); LARGE / 13]));
    check("spec.affinity", (3, 5), &|| {
        let mut terms = vec![json!({}); LARGE / 3];
        terms.push(json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}));
        let required = json!({"nodeSelectorTerms": terms});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    });
}
