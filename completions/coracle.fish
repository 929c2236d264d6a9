# fish completion of coracle(8). tests/manual.rs holds it against the program's own help.

set -l commands describe events help join leave logs pods status top validate version
complete -c coracle -f
complete -c coracle -n __fish_use_subcommand -a describe -d 'Everything about one pod'
complete -c coracle -n __fish_use_subcommand -a join -d 'Make this machine a node of a cluster'
complete -c coracle -n __fish_use_subcommand -a leave -d 'Take this machine out of its cluster'
complete -c coracle -n __fish_use_subcommand -a logs -d 'What a container has written'
complete -c coracle -n __fish_use_subcommand -a events -d 'What has happened of late'
complete -c coracle -n __fish_use_subcommand -a help -d 'What --help says'
complete -c coracle -n __fish_use_subcommand -a pods -d 'The pods of this node'
complete -c coracle -n __fish_use_subcommand -a status -d 'The node, its runtime, its manifests, what went wrong last'
complete -c coracle -n __fish_use_subcommand -a top -d 'What the node and its pods use'
complete -c coracle -n __fish_use_subcommand -a validate -d 'Check manifests before they are put in place'
complete -c coracle -n __fish_use_subcommand -a version -d 'The version'

complete -c coracle -s h -l help -d 'What there is'
complete -c coracle -n '__fish_seen_subcommand_from help' -a 'describe events join leave logs pods status top validate version'
complete -c coracle -n '__fish_seen_subcommand_from validate' -F
complete -c coracle -n '__fish_seen_subcommand_from pods' -s o -l output -x -a 'wide json yaml' -d 'How they are shown'
complete -c coracle -n '__fish_seen_subcommand_from events status' -s o -l output -x -a 'json yaml' -d 'How it is shown'
complete -c coracle -n '__fish_seen_subcommand_from top' -s o -l output -x -a 'json' -d 'How it is shown'
complete -c coracle -n '__fish_seen_subcommand_from top' -s w -l watch -d 'Again and again'
complete -c coracle -n '__fish_seen_subcommand_from describe events logs pods top' -s n -l namespace -x -d 'Only what is in this one'
set -l logs '__fish_seen_subcommand_from logs'
complete -c coracle -n $logs -s c -l container -x -d 'The container'
complete -c coracle -n $logs -s f -l follow -d 'Go on with what comes'
complete -c coracle -n $logs -s p -l previous -d 'Of the run before this one'
complete -c coracle -n $logs -l tail -x -d 'Only so many of the last lines'
complete -c coracle -n $logs -l since -x -d 'Only what is younger'
complete -c coracle -n $logs -l timestamps -d 'With the moment before each line'
complete -c coracle -n $logs -l limit-bytes -x -d 'No more than this'
set -l join '__fish_seen_subcommand_from join'
complete -c coracle -n $join -l token -x -d 'Good for asking for a certificate'
complete -c coracle -n $join -l discovery-token-ca-cert-hash -x -d "Digest of the authority's key"
complete -c coracle -n $join -l discovery-token-unsafe-skip-ca-verification -d 'Believe whoever knows the token'
complete -c coracle -n $join -l node-name -x -d 'Name of the node'
complete -c coracle -n $join -l no-start -d 'Write everything, and start nothing'
complete -c coracle -n $join -l timeout -x -d 'Ask a server that is away for so long'
set -l leave '__fish_seen_subcommand_from leave'
complete -c coracle -n $leave -l delete-node -d "Delete the node's object, too"
complete -c coracle -n $leave -l no-restart -d 'Leave the agent as it runs'
complete -c coracle -n '__fish_seen_subcommand_from join leave' -l kubernetes-dir -r -F -d 'Kubeconfigs'
complete -c coracle -n '__fish_seen_subcommand_from join leave' -l root-dir -r -F -d 'State'
complete -c coracle -n "not __fish_seen_subcommand_from help join leave validate version" -l local-socket -r -F -d 'Where coracle listens'

set -l agent "not __fish_seen_subcommand_from $commands"
complete -c coracle -n $agent -l pod-manifest-path -r -F -d 'Manifests, a directory or a file'
complete -c coracle -n $agent -l file-check-frequency -x -d 'Look at the manifests again after this'
complete -c coracle -n $agent -l max-pods -x -d 'How many pods this node runs'
complete -c coracle -n $agent -l node-labels -x -d 'Labels of the node'
complete -c coracle -n $agent -l register-node -a 'true false' -d "Make the node's object"
complete -c coracle -n $agent -l register-with-taints -x -d 'Taints of a new node'
complete -c coracle -n $agent -l node-status-max-images -x -d "Images in the node's status"
complete -c coracle -n $agent -l cloud-provider -x -a external -d "A cloud's controller knows the addresses"
complete -c coracle -n $agent -l pod-max-pids -x -d 'Processes of one pod'
complete -c coracle -n $agent -l seccomp-default -d 'RuntimeDefault where a pod says nothing'
complete -c coracle -n $agent -l container-runtime-endpoint -r -F -d 'The runtime'
complete -c coracle -n $agent -l image-service-endpoint -r -F -d 'Where images are pulled'
complete -c coracle -n $agent -l runtime-request-timeout -x -d 'How long the runtime may take'
complete -c coracle -n $agent -l serialize-image-pulls -a 'true false' -d 'One image at a time'
complete -c coracle -n $agent -l registry-qps -x -d 'Pulls per second'
complete -c coracle -n $agent -l registry-burst -x -d 'Pulls at once'
complete -c coracle -n $agent -l image-credential-provider-config -r -F -d 'Programs that give credentials'
complete -c coracle -n $agent -l image-credential-provider-bin-dir -r -F -d 'Where these programs are'
complete -c coracle -n $agent -l strict-image-pull-policy -d 'No image without its registry'
complete -c coracle -n $agent -l image-gc-high-threshold -x -d 'Percent of the disk from which images are removed'
complete -c coracle -n $agent -l image-gc-low-threshold -x -d 'Percent of the disk down to which images are removed'
complete -c coracle -n $agent -l eviction-hard -x -d 'Amounts below which pods go'
complete -c coracle -n $agent -l eviction-soft -x -d 'Amounts below which pods go after a while'
complete -c coracle -n $agent -l eviction-soft-grace-period -x -d 'How long that while is'
complete -c coracle -n $agent -l evict-static-pods -d 'Static pods go, too'
complete -c coracle -n $agent -l hostname-override -x -d 'Name of the node'
complete -c coracle -n $agent -l node-ip -x -d 'Addresses of the node'
complete -c coracle -n $agent -l cluster-dns -x -d 'Resolvers of the cluster'
complete -c coracle -n $agent -l cluster-domain -x -d 'Domain of the cluster'
complete -c coracle -n $agent -l leave-kernel-parameters -d "Do not set the kernel's parameters"
complete -c coracle -n $agent -l resolv-conf -r -F -d 'Resolver settings that pods inherit'
complete -c coracle -n $agent -l kubeconfig -r -F -d "The node's credentials"
complete -c coracle -n $agent -l bootstrap-kubeconfig -r -F -d 'Credentials to ask for its own ones with'
complete -c coracle -n $agent -l rotate-certificates -d 'Replace the certificate before it expires'
complete -c coracle -n $agent -l cert-dir -r -F -d 'Certificates and keys'
complete -c coracle -n $agent -l enable-server -a 'true false' -d "Answer the kubelet's API"
complete -c coracle -n $agent -l address -x -d 'Where it is answered'
complete -c coracle -n $agent -l port -x -d 'Where it is answered'
complete -c coracle -n $agent -l tls-cert-file -r -F -d "The server's certificate"
complete -c coracle -n $agent -l tls-private-key-file -r -F -d "The server's key"
complete -c coracle -n $agent -l rotate-server-certificates -d "Ask the cluster for the server's certificate"
complete -c coracle -n $agent -l client-ca-file -r -F -d "Whose certificates are believed of clients"
complete -c coracle -n $agent -l anonymous-auth -a 'true false' -d 'Let in who shows nothing'
complete -c coracle -n $agent -l authorization-mode -x -a 'Webhook AlwaysAllow' -d 'Who may ask'
complete -c coracle -n $agent -l cgroup-driver -x -a 'cgroupfs systemd' -d 'Who makes control groups'
complete -c coracle -n $agent -l cgroups-per-qos -a 'true false' -d 'Control groups for the classes of pods'
complete -c coracle -n $agent -l cpu-cfs-quota -a 'true false' -d 'Keep containers to their CPU limits'
complete -c coracle -n $agent -l fail-swap-on -a 'true false' -d 'Do not start where swap is on'
complete -c coracle -n $agent -l config -r -F -d 'A KubeletConfiguration'
complete -c coracle -n $agent -l config-dir -r -F -d 'Files laid over it'
complete -c coracle -n $agent -l root-dir -r -F -d 'State'
complete -c coracle -n $agent -l healthz-port -x -d 'Where /healthz is answered'
complete -c coracle -n $agent -l healthz-bind-address -x -d 'Where /healthz is answered'
complete -c coracle -n $agent -l lock-file -r -F -d 'Held while this process runs'
complete -c coracle -n $agent -l watchdog-device -r -F -d 'Pet this one while the sync loop moves'
complete -c coracle -n $agent -s v -l v -x -d 'Verbosity'
complete -c coracle -n $agent -l version -d 'The version'
