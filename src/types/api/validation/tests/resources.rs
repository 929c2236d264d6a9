//! Requests and limits.

use super::*;

const RESOURCE: &str =
    "must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain such as example.com/device";

/// Asserts the errors below `resources` of a container.
#[track_caller]
fn check_resources(resources: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["resources", wanted.as_ref()].concat()).collect();
    check_container(json!({"resources": resources}), &wanted);
}

#[test]
fn resource_names_are_known_or_have_a_domain() {
    passes_container(json!({"resources": {"limits": {
        "cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": 1,
    }}}));
    check_resources(json!({"requests": {"cpus": 1}}), &[format!(".requests: \"cpus\": {RESOURCE}")]);
    check_resources(
        json!({"limits": {"requests.example.com/gpu": 1}}),
        &[
            format!(".limits: \"requests.example.com/gpu\": {RESOURCE}"),
            format!(".requests: \"requests.example.com/gpu\": {RESOURCE}"),
        ],
    );
    check_resources(
        json!({"requests": {"kubernetes.io/a b": 1}}),
        &[format!(".requests: \"kubernetes.io/a b\": {RESOURCE}")],
    );
}

#[test]
fn amounts_are_not_negative_and_extended_resources_whole() {
    check_resources(json!({"requests": {"cpu": -1}}), &[".requests.cpu: \"-1\": must not be negative"]);
    check_resources(
        json!({"limits": {"example.com/gpu": "500m"}}),
        &[
            ".limits[\"example.com/gpu\"]: \"500m\": must be a whole number",
            ".requests[\"example.com/gpu\"]: \"500m\": must be a whole number",
        ],
    );
}

#[test]
fn requests_never_exceed_limits() {
    passes_container(json!({"resources": {"requests": {"cpu": "500m", "memory": 1}, "limits": {"cpu": 1}}}));
    check_resources(
        json!({"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
        &[".requests.cpu: \"2\": must be at most the limit, 1500m"],
    );
    check_resources(
        json!({"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 2}}),
        &[".requests[\"example.com/gpu\"]: \"1\": must be the limit, 2"],
    );
    check_resources(
        json!({"requests": {"example.com/gpu": 1}}),
        &[".requests[\"example.com/gpu\"]: must have a limit as well, for it cannot be overcommitted"],
    );
}

#[test]
fn huge_pages_are_whole_and_need_cpu_or_memory() {
    passes_container(json!({"resources": {"requests": {"memory": 1}, "limits": {"hugepages-1Gi": "2Gi"}}}));
    check_resources(json!({"limits": {"hugepages-2Mi": "2Mi"}}), &[": huge pages need cpu or memory beside them"]);
    for (name, amount) in [("hugepages-2Mi", "3Mi"), ("hugepages-big", "1Mi"), ("hugepages-0", "1Mi")] {
        check_resources(
            json!({"limits": {"cpu": 1, name: amount}}),
            &["limits", "requests"]
                .map(|list| format!(".{list}.{name}: \"{amount}\": must be a multiple of the page size")),
        );
    }
}

#[test]
fn container_claims_name_claims_of_the_pod() {
    let with = |claims: Value| {
        let mut spec = container(json!({"resources": {"claims": claims}}));
        spec["resourceClaims"] =
            json!([{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "y"}]);
        spec
    };
    passes_spec(with(json!([{"name": "a"}, {"name": "b", "request": "one"}, {"name": "b", "request": "two"}])));
    let path = "spec.containers[0].resources.claims";
    check_spec(
        with(json!([{}, {"name": "z"}])),
        &[
            format!("{path}[0].name: required"),
            format!("{path}[1].name: \"z\": no entry of the pod's resourceClaims has this name"),
        ],
    );
    check_spec(with(json!([{"name": "a", "request": "One"}])), &[format!("{path}[0].request: \"One\": {DNS_LABEL}")]);
    let duplicate = [format!("{path}[1].name: \"a\": duplicate")];
    check_spec(with(json!([{"name": "a"}, {"name": "a"}])), &duplicate);
    check_spec(with(json!([{"name": "a"}, {"name": "a", "request": "r"}])), &duplicate);
    check_spec(with(json!([{"name": "a", "request": "r"}, {"name": "a"}])), &duplicate);
    check_spec(with(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}])), &duplicate);
}

#[test]
fn resize_policies_are_validated() {
    passes_container(json!({"resizePolicy": [
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]}));
    check_container(
        json!({"resizePolicy": [{}, {"resourceName": "cpu"}, {"resourceName": "cpu"}, {"resourceName": "gpu"}]}),
        &[
            "resizePolicy[0].resourceName: required",
            "resizePolicy[2].resourceName: \"cpu\": duplicate",
            "resizePolicy[3].resourceName: \"gpu\": must be \"cpu\" or \"memory\"",
        ],
    );
    let mut spec = container(json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}));
    spec["restartPolicy"] = json!("Never");
    check_spec(
        spec,
        &["spec.containers[0].resizePolicy[0].restartPolicy: \"RestartContainer\": \
           must be \"NotRequired\" when the pod's restartPolicy is \"Never\""],
    );
}

#[test]
fn pod_level_resources_cover_the_containers() {
    let with = |resources: Value| {
        let mut spec = container(json!({"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}}));
        spec["resources"] = resources;
        spec
    };
    passes_spec(with(json!({"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 2}})));
    check_spec(
        with(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m"}})),
        &[
            "spec.resources.requests.cpu: \"500m\": must be at least the 1 that the containers request",
            "spec.resources.limits.cpu: \"1500m\": must be at least the 2 that containers[0] may use",
        ],
    );
    check_spec(
        with(json!({"requests": {"cpu": 1, "ephemeral-storage": 1}, "claims": [{"name": "a"}]})),
        &[
            "spec.resources.claims: must not be set for a whole pod",
            "spec.resources.requests: \"ephemeral-storage\": must be cpu, memory or hugepages-<size>",
        ],
    );
}

#[test]
fn overhead_is_validated() {
    passes_spec(json!({"overhead": {"cpu": "250m", "memory": "120Mi"}}));
    check_spec(json!({"overhead": {"cpu": -1}}), &["spec.overhead.cpu: \"-1\": must not be negative"]);
    check_spec(json!({"overhead": {"cups": 1}}), &[format!("spec.overhead: \"cups\": {RESOURCE}")]);
}
