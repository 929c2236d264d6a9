//! The rights that `coracle fleet` and `coracle rollout` need, as manifests. Pure.

/// The namespace is one of its own: the right to write ConfigMaps of `kube-system` is one over the whole cluster.
const RIGHTS: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: @NAMESPACE@}
---
# coracle fleet
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coracle-fleet}
rules:
- {apiGroups: [\"\"], resources: [nodes], verbs: [get, list]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list]}
---
# coracle rollout, beside the role coracle-fleet
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coracle-rollout}
rules:
- {apiGroups: [\"\"], resources: [nodes], verbs: [patch]}                            # --agent and --config
- {apiGroups: [apps], resources: [daemonsets, controllerrevisions], verbs: [get, list]}  # --daemonset
- {apiGroups: [\"\"], resources: [pods], verbs: [list, delete]}                      # --daemonset
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: coracle-rollout, namespace: @NAMESPACE@}
rules:
- {apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, create, patch, delete]}
";

/// The bindings of a user: their kind, the kind and the name of the role.
const BINDINGS: [[&str; 3]; 3] = [
    ["ClusterRoleBinding", "ClusterRole", "coracle-fleet"],
    ["ClusterRoleBinding", "ClusterRole", "coracle-rollout"],
    ["RoleBinding", "Role", "coracle-rollout"],
];

/// Gives a role to `user`. Both `namespace` and `user` are quoted.
fn binding([kind, role, name]: [&str; 3], namespace: &str, user: &str) -> String {
    let namespace = if kind == "RoleBinding" { format!(", namespace: {namespace}") } else { String::new() };
    format!(
        "---
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata: {{name: {name}{namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role}, name: {name}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]
"
    )
}

/// The roles, and for a user their bindings.
pub(super) fn rights(namespace: &str, user: Option<&str>) -> String {
    // As JSON, which is YAML too: a name may need quotes.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let namespace = quoted(namespace);
    let bindings = user.map(quoted).map(|user| BINDINGS.map(|each| binding(each, &namespace, &user)).concat());
    RIGHTS.replace("@NAMESPACE@", &namespace) + &bindings.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::yaml;

    #[test]
    fn manifests_are_yaml_with_the_users_name() {
        let documents = yaml::parse(rights("coracle", Some("ops: x")).as_bytes()).unwrap();
        let kinds: Vec<&str> = documents.iter().map(|one| one.value["kind"].as_str().unwrap()).collect();
        let bindings = ["ClusterRoleBinding", "ClusterRoleBinding", "RoleBinding"];
        assert_eq!(kinds[..4], ["Namespace", "ClusterRole", "ClusterRole", "Role"]);
        assert_eq!(kinds[4..], bindings);
        assert_eq!(documents[4].value["subjects"][0]["name"], "ops: x");
        assert_eq!(yaml::parse(rights("coracle", None).as_bytes()).unwrap().len(), 4);
    }
}
