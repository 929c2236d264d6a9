//! Deadlines, names, namespaces, tolerations and gates.

use super::*;

#[test]
fn deadlines_and_grace_periods_are_in_range() {
    passes_spec(json!({"activeDeadlineSeconds": i32::MAX, "terminationGracePeriodSeconds": 0}));
    passes_spec(json!({"activeDeadlineSeconds": 1}));
    for seconds in [0, i64::from(i32::MAX) + 1] {
        check_spec(
            json!({"activeDeadlineSeconds": seconds}),
            &[format!("spec.activeDeadlineSeconds: {seconds}: must be from 1 to 2147483647")],
        );
    }
    passes_spec(json!({"terminationGracePeriodSeconds": -1}));
}

#[test]
fn names_of_referenced_objects_are_dns_subdomains() {
    passes_spec(json!({
        "serviceAccountName": "a.b", "nodeName": "Node1", "priorityClassName": "system-node-critical",
        "runtimeClassName": "kata", "preemptionPolicy": "Never",
    }));
    for field in ["serviceAccountName", "priorityClassName", "runtimeClassName"] {
        check_spec(json!({field: "A"}), &[format!("spec.{field}: \"A\": {DNS_SUBDOMAIN}")]);
    }
    check_spec(json!({"runtimeClassName": ""}), &[format!("spec.runtimeClassName: \"\": {DNS_SUBDOMAIN}")]);
    check_spec(
        json!({"preemptionPolicy": "Always"}),
        &["spec.preemptionPolicy: \"Always\": must be \"Never\" or \"PreemptLowerPriority\""],
    );
}

#[test]
fn user_namespaces_exclude_host_namespaces() {
    passes_spec(json!({"hostUsers": false}));
    passes_spec(json!({"hostUsers": true, "hostNetwork": true, "hostPID": true, "hostIPC": true}));
    check_spec(
        json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}),
        &[
            "spec.hostNetwork: must not be set when hostUsers is false",
            "spec.hostPID: must not be set when hostUsers is false",
            "spec.hostIPC: must not be set when hostUsers is false",
        ],
    );
    let mut spec = container(json!({"volumeDevices": [{"name": "v", "devicePath": "/d"}]}));
    spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    passes_spec(spec.clone());
    spec["hostUsers"] = json!(false);
    check_spec(spec, &["spec.containers[0].volumeDevices: must not be set when hostUsers is false"]);
}

#[test]
fn os_is_linux_or_windows() {
    passes_spec(json!({"os": {"name": "linux"}}));
    passes_spec(json!({"os": {"name": "windows"}}));
    check_spec(json!({"os": {}}), &["spec.os.name: required"]);
    check_spec(json!({"os": {"name": "plan9"}}), &["spec.os.name: \"plan9\": must be \"linux\" or \"windows\""]);
}

#[test]
fn node_selectors_are_labels() {
    passes_spec(json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}));
    check_spec(
        json!({"nodeSelector": {"a b": "c", "d": "e f"}}),
        &[format!("spec.nodeSelector: \"a b\": {LABEL_KEY}"), format!("spec.nodeSelector.d: \"e f\": {LABEL_VALUE}")],
    );
}

#[test]
fn required_node_affinity_is_validated() {
    let affinity = |terms: Value| {
        let required = json!({"nodeSelectorTerms": terms});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
    };
    passes_spec(affinity(json!([{
        "matchExpressions": [
            {"key": "example.com/a", "operator": "In", "values": ["b", ""]}, {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "Gt", "values": ["5"]},
        ],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}],
    }])));
    let terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    check_spec(affinity(json!([])), &[format!("{terms}: required: at least one term")]);
    for (list, requirement, wanted) in [
        ("matchExpressions", json!({"operator": "Exists"}), "key: required".to_owned()),
        ("matchExpressions", json!({"key": "a b", "operator": "Exists"}), format!("key: \"a b\": {LABEL_KEY}")),
        ("matchExpressions", json!({"key": "a"}), "operator: required".to_owned()),
        (
            "matchExpressions",
            json!({"key": "a", "operator": "In"}),
            "values: required: at least one value when the operator is \"In\" or \"NotIn\"".to_owned(),
        ),
        (
            "matchExpressions",
            json!({"key": "a", "operator": "NotIn", "values": ["b c"]}),
            format!("values[0]: \"b c\": {LABEL_VALUE}"),
        ),
        (
            "matchExpressions",
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            "values: must not be set when the operator is \"Exists\" or \"DoesNotExist\"".to_owned(),
        ),
        (
            "matchExpressions",
            json!({"key": "a", "operator": "Lt", "values": ["1", "2"]}),
            "values: required: a single value when the operator is \"Gt\" or \"Lt\"".to_owned(),
        ),
        (
            "matchFields",
            json!({"key": "spec.x", "operator": "In", "values": ["b"]}),
            "key: \"spec.x\": must be \"metadata.name\"".to_owned(),
        ),
        (
            "matchFields",
            json!({"key": "metadata.name", "operator": "Exists"}),
            "operator: \"Exists\": must be \"In\" or \"NotIn\" for a field".to_owned(),
        ),
        (
            "matchFields",
            json!({"key": "metadata.name", "operator": "In"}),
            "values: required: a single value for a field".to_owned(),
        ),
    ] {
        check_spec(affinity(json!([{list: [requirement]}])), &[format!("{terms}[0].{list}[0].{wanted}")]);
    }
}

#[test]
fn tolerations_are_validated() {
    passes_spec(json!({"tolerations": [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "example.com/a", "value": "b"},
        {"key": "a", "operator": "Gt", "value": "5"},
        {"key": "a", "operator": "Equal", "effect": "NoSchedule"},
    ]}));
    let cases = [
        (json!({"key": "a b", "operator": "Exists"}), format!("key: \"a b\": {LABEL_KEY}")),
        (json!({}), "operator: \"Equal\": must be \"Exists\" when there is no key".to_owned()),
        (
            json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}),
            "effect: \"NoSchedule\": must be \"NoExecute\" when tolerationSeconds is set".to_owned(),
        ),
        (
            json!({"key": "a", "tolerationSeconds": 1}),
            "effect: \"\": must be \"NoExecute\" when tolerationSeconds is set".to_owned(),
        ),
        (json!({"key": "a", "value": "b c"}), format!("value: \"b c\": {LABEL_VALUE}")),
        (
            json!({"key": "a", "operator": "Exists", "value": "b"}),
            "value: \"b\": must be empty when the operator is \"Exists\"".to_owned(),
        ),
        (
            json!({"key": "a", "operator": "Lt", "value": "b"}),
            "value: \"b\": must be a whole number when the operator is \"Gt\" or \"Lt\"".to_owned(),
        ),
    ];
    for (toleration, wanted) in cases {
        check_spec(json!({"tolerations": [toleration]}), &[format!("spec.tolerations[0].{wanted}")]);
    }
}

#[test]
fn gates_have_qualified_names() {
    passes_spec(json!({
        "readinessGates": [{"conditionType": "example.com/gate"}],
        "schedulingGates": [{"name": "example.com/a"}, {"name": "b"}],
    }));
    check_spec(
        json!({"readinessGates": [{}, {"conditionType": "a b"}]}),
        &[
            "spec.readinessGates[0].conditionType: required".to_owned(),
            format!("spec.readinessGates[1].conditionType: \"a b\": {LABEL_KEY}"),
        ],
    );
    check_spec(
        json!({"schedulingGates": [{"name": "a b"}, {"name": "c"}, {"name": "c"}, {}]}),
        &[
            format!("spec.schedulingGates[0].name: \"a b\": {LABEL_KEY}"),
            "spec.schedulingGates[2].name: \"c\": duplicate".to_owned(),
            "spec.schedulingGates[3].name: required".to_owned(),
        ],
    );
    check_spec(
        json!({"schedulingGates": [{"name": "a"}], "nodeName": "n"}),
        &["spec.schedulingGates: must not be set when nodeName is set"],
    );
}

#[test]
fn resource_claims_need_a_name_and_one_source() {
    passes_spec(json!({"resourceClaims": [
        {"name": "a", "resourceClaimName": "c"}, {"name": "b", "resourceClaimTemplateName": "t"},
    ]}));
    check_spec(
        json!({"resourceClaims": [
            {"resourceClaimName": "c"},
            {"name": "A", "resourceClaimName": "C"},
            {"name": "a"},
            {"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"},
        ]}),
        &[
            "spec.resourceClaims[0].name: required".to_owned(),
            format!("spec.resourceClaims[1].name: \"A\": {DNS_LABEL}"),
            format!("spec.resourceClaims[1].resourceClaimName: \"C\": {DNS_SUBDOMAIN}"),
            "spec.resourceClaims[2]: required: one of resourceClaimName and resourceClaimTemplateName".to_owned(),
            "spec.resourceClaims[3].name: \"a\": duplicate".to_owned(),
            "spec.resourceClaims[3]: only one of resourceClaimName and resourceClaimTemplateName may be given"
                .to_owned(),
        ],
    );
}
