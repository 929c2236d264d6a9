//! The flags that several commands of `command_table.rs` share, declared once. Pure.

/// Replaces the name of a shared flag by its declaration, adds `$more` to that, and goes on with the macro `$next`.
macro_rules! shared_flag {
    ($next:ident { $($before:tt)* } NAMESPACE { $($more:tt)* } $($rest:tt)*) => {
        $next! { $($before)*
            namespace['n']: Option<String> => flag(Value::Text("NAMESPACE"), "namespace of the pod") $($more)*;
        $($rest)* }
    };
    ($next:ident { $($before:tt)* } CONTAINER { $($more:tt)* } $($rest:tt)*) => {
        $next! { $($before)*
            container['c']: Option<String>
                => flag(Value::Container, "container").default("the first container of the pod") $($more)*;
        $($rest)* }
    };
    // The manual page describes it once for all commands.
    ($next:ident { $($before:tt)* } LOCAL_SOCKET { $($more:tt)* } $($rest:tt)*) => {
        $next! { $($before)*
            local_socket: PathBuf = "default_socket()"
                => flag(Value::File("PATH"), "socket of the agent").default("/run/coracle/coracle.sock") $($more)*;
        $($rest)* }
    };
    ($next:ident { $($before:tt)* } KUBERNETES_DIR { $($more:tt)* } $($rest:tt)*) => {
        $next! { $($before)*
            kubernetes_dir: PathBuf = "PathBuf::from(KUBERNETES_DIR)"
                => flag(Value::Directory, "directory of kubeconfigs and the cluster CA").default("/etc/kubernetes")
                $($more)*;
        $($rest)* }
    };
    ($next:ident { $($before:tt)* } ROOT_DIR { $($more:tt)* } $($rest:tt)*) => {
        $next! { $($before)*
            root_dir: PathBuf = "PathBuf::from(ROOT_DIR)"
                => flag(Value::Directory, "directory of the state of the agent").default("/var/lib/kubelet") $($more)*;
        $($rest)* }
    };
}
