#compdef coracle
# Completion of coracle(8). Generated from src/cli/command_table.rs: UPDATE_GOLDEN=1 cargo test --test manual

# The pods, their containers and the images of this node, if its agent answers.
_coracle_pods() {
    local -a pods
    pods=(${${(f)"$(coracle pods -o name 2>/dev/null)"}#pod/})
    compadd $pods
}

_coracle_pods_and_files() { _alternative 'pods:pod:_coracle_pods' 'files:file:_files' }

_coracle_containers() {
    local word found
    for word in ${words[3,-1]:#-*}; do
        found=$(coracle pods $word -o jsonpath='{.spec.initContainers[*].name} {.spec.containers[*].name}' 2>/dev/null) && break
    done
    [[ -n $found ]] || found=$(coracle pods -o jsonpath='{.items[*].spec.containers[*].name}' 2>/dev/null)
    compadd ${(s: :)found}
}

_coracle_images() {
    local -a images
    images=(${${(f)"$(coracle images 2>/dev/null)"}[2,-1]})
    compadd ${${images%% *}:#<none>}
}

_coracle() {
    if (( CURRENT > 2 )); then
        case $words[2] in
            status)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[print all fields as JSON or YAML]:output:(json yaml)' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            pods)
                _arguments -s '*:pod:_coracle_pods' \
                    '(-A --all-namespaces)'{-A,--all-namespaces}'[pods of all namespaces, also without this]' \
                    '(-o --output)'{-o,--output}'[output format; wide adds address, uid and manifest, json and yaml are a v1.PodList]:output:(wide json yaml name jsonpath=)' \
                    '(-l --selector)'{-l,--selector}'[only pods with these labels, as app=web]:labels:' \
                    '(-w --watch)'{-w,--watch}'[print each row again when it changes]' \
                    '(-n --namespace)'{-n,--namespace}'[only pods of this namespace]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            describe)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            logs)
                _arguments -s '*:pod:_coracle_pods' \
                    '(-c --container)'{-c,--container}'[container]:container:_coracle_containers' \
                    '--all-containers[the logs of all containers of the pod]' \
                    '(-l --selector)'{-l,--selector}'[the logs of pods with these labels]:labels:' \
                    '(-f --follow)'{-f,--follow}'[print new lines until the container exits]' \
                    '(-p --previous)'{-p,--previous}'[print the log of the previous instance]' \
                    '--tail[print only the last N lines]:n:' \
                    '--since[print only lines younger than this, as 90s or 2h]:duration:' \
                    '--since-time[print only lines from this time on (RFC 3339)]:time:' \
                    '(-t --timestamps)'{-t,--timestamps}'[print the time of each line]' \
                    '--limit-bytes[print at most N bytes]:n:' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            exec)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-i --stdin)'{-i,--stdin}'[pass standard input to the command, until its end]' \
                    '(-t --tty)'{-t,--tty}'[run the command on a terminal]' \
                    '(-c --container)'{-c,--container}'[container]:container:_coracle_containers' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            attach)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-i --stdin)'{-i,--stdin}'[pass standard input to the container]' \
                    '(-t --tty)'{-t,--tty}'[show the terminal of the container on this one]' \
                    '(-c --container)'{-c,--container}'[container]:container:_coracle_containers' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            port-forward)
                _arguments -s '2::pod:_coracle_pods' \
                    '*:port:' \
                    '--address[addresses to listen on]:ip,...:' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            events)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-o --output)'{-o,--output}'[print a v1.EventList]:output:(json yaml)' \
                    '(-A --all-namespaces)'{-A,--all-namespaces}'[events of all namespaces, also without this]' \
                    '(-w --watch)'{-w,--watch}'[print new events as they come]' \
                    '(-n --namespace)'{-n,--namespace}'[only events of this namespace]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            claims)
                _arguments -s '2:: :' \
                    '(-n --namespace)'{-n,--namespace}'[only claims of this namespace]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            jobs)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[print all fields]:output:(json)' \
                    '(-n --namespace)'{-n,--namespace}'[only Jobs and CronJobs of this namespace]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            devices)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[print all fields]:output:(json)' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            images)
                _arguments -s '2::action:(delta import prune pull remove)' \
                    "*:image:$([[ $words[3] == remove || $words[3] == rm ]] && echo _coracle_images || echo _files)" \
                    '(-o --output)'{-o,--output}'[output format; wide adds digests and all pods, json has all fields; for delta the file to write]:output:(wide json)' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            top)
                _arguments -s '2:: :' \
                    '(-w --watch)'{-w,--watch}'[repeat every three seconds]' \
                    '(-o --output)'{-o,--output}'[print the whole Summary of /stats/summary]:output:(json)' \
                    '(-n --namespace)'{-n,--namespace}'[only pods of this namespace]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            apply)
                _arguments -s '*:manifest:_files' \
                    '*'{-f,--filename}'[manifest, directory, or - for standard input; may be given again]:file|-:_files' \
                    '--dry-run[check the manifests and print what would change]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            diff)
                _arguments -s '*:manifest:_files' \
                    '*'{-f,--filename}'[manifest, directory, or - for standard input; may be given again]:file|-:_files' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            cp)
                _arguments -s '*:pod:_coracle_pods_and_files' \
                    '(-c --container)'{-c,--container}'[container]:container:_coracle_containers' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            delete)
                _arguments -s '*:pod:_coracle_pods' \
                    '*'{-f,--filename}'[manifest or directory whose pods to delete; may be given again]:file|-:_files' \
                    '--wait[wait until the pod is gone]' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            wait)
                _arguments -s '*:pod:_coracle_pods' \
                    '--until[state to wait for]:until:(ready done delete)' \
                    '--timeout[longest time to wait]:duration:' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            restart)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-c --container)'{-c,--container}'[restart only this container]:container:_coracle_containers' \
                    '--wait[wait until the containers run again]' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            rerun)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            stop)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            start)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            rollback)
                _arguments -s '2::pod:_coracle_pods' \
                    '--to[number of versions to go back]:n:' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            hold)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            confirm)
                _arguments -s '2::pod:_coracle_pods' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the pod]:namespace:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            sync)
                _arguments -s '2:: :' \
                    '--wait[wait until everything is exchanged, and print a summary]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            validate)
                _arguments -s '*:manifest:_files' \
                    '*'{-f,--filename}'[manifest, directory, or - for standard input, as an argument]:file|-:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            doctor)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[print it as JSON]:output:(json)' \
                    '--first-start[print only problems, and only if the agent has never run here]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            runtime-config)
                _arguments -s '2::runtime:(containerd crio)' \
                    '--unit[print the drop-in of the unit of the runtime]' \
                    '--runtime-version[version of the runtime, as 2.1]:version:' \
                    '--cgroup-driver[driver of control groups]:cgroup-driver:(cgroupfs systemd)' \
                    '--pause-image[pause image]:image:' \
                    '--cni-bin-dir[directory of the network plugins]:directory:_files -/' \
                    '--crun[version of /usr/bin/crun]:version|none:' \
                    '--shim[shim that containerd uses instead of its own]:program:_files' \
                    '--apply[configuration to try]:file:_files' \
                    '--file[configuration that --apply replaces]:file:_files' \
                    '--restart-command[shell command that restarts the runtime]:command:' \
                    '--within[time limit of the trial]:duration:' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            upgrade)
                _arguments -s '*:FILE:_files' \
                    '--signature[signature of the program]:file:_files' \
                    '--public-key[Ed25519 public key, in PEM or base64]:file:_files' \
                    '--unsigned[accept a program without a signature]' \
                    '--allow-downgrade[accept an older version than the running one]' \
                    '--within[time limit of the trial after each start]:duration:' \
                    '--wait[wait for the end of the trial; exit code 1 if it was rejected]' \
                    '(-o --output)'{-o,--output}'[print the status as JSON]:output:(json)' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            config)
                _arguments -s '2::action:(apply)' \
                    '*:FILE:_files' \
                    '--within[time limit of the trial after each start]:duration:' \
                    '--wait[wait for the end of the trial; exit code 1 if it was rejected]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            support)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[archive to write, or - for standard output]:file:_files' \
                    '--no-container-logs[leave out the logs of containers]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            seal)
                _arguments -s '2:: :' \
                    '(-f --filename)'{-f,--filename}'[manifest with Secrets, or - for standard input]:file|-:_files' \
                    '--to[public key of the board, as its coracle seal prints it]:key:' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            page-token)
                _arguments -s '2:: :' \
                    '--remove[remove the token, so that the page is read-only]' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            join)
                _arguments -s '2:server:' \
                    '--token[bootstrap token, for the certificate request of this node]:token:' \
                    '*--discovery-token-ca-cert-hash[digest of the public key of the cluster CA; may be given again]:sha256\:digest:' \
                    '--discovery-token-unsafe-skip-ca-verification[trust every server that knows the token]' \
                    '--node-name[name of the node]:name:' \
                    '--name-template[template that names the node after its board, such as edge-{serial}]:template:' \
                    '--no-start[write all files and do not start the service]' \
                    '--timeout[how long to retry while the server is unreachable, 0 for no limit]:duration:' \
                    '--kubernetes-dir[directory of kubeconfigs and the cluster CA]:directory:_files -/' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            leave)
                _arguments -s '2:: :' \
                    '--delete-node[also delete the Node object]' \
                    '--no-restart[do not restart the agent]' \
                    '--kubernetes-dir[directory of kubeconfigs and the cluster CA]:directory:_files -/' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            replace)
                _arguments -s '2:node:' \
                    '--from[root directory of the old board'\''s card, or of a copy of it]:directory:_files -/' \
                    '--force[do not ask the cluster whether the old board is alive]' \
                    '--no-start[do not start the service]' \
                    '--local-socket[socket of the agent]:path:_files' \
                    '--kubernetes-dir[directory of kubeconfigs and the cluster CA]:directory:_files -/' \
                    '--root-dir[directory of the state of the agent]:directory:_files -/' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            fleet)
                _arguments -s '2:: :' \
                    '(-l --selector)'{-l,--selector}'[only nodes with these labels, as site=a]:labels:' \
                    '(-o --output)'{-o,--output}'[output format; wide adds all leases, verdicts and certificates]:output:(wide json yaml name jsonpath=)' \
                    '--kubeconfig[kubeconfig]:file:_files' \
                    '--context[context of the kubeconfig]:name:' \
                    '--traffic[print the requests and bytes that it took]' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            rollout)
                _arguments -s '2::action:(abort pause resume rights start status)' \
                    '*:name:' \
                    '--daemonset[DaemonSet whose pods are replaced]:namespace/name:' \
                    '--agent[program for the annotation coracle.dev/upgrade]:url:' \
                    '--config[configuration for the annotation coracle.dev/config]:url:' \
                    '(-l --selector)'{-l,--selector}'[only nodes with these labels, as site=a]:labels:' \
                    '--first[nodes of the first step]:n:' \
                    '--then[parts of all nodes for the steps after it]:percents:' \
                    '--max-unavailable[maximum number of nodes that are changing or not healthy]:n|percent:' \
                    '--stop-after[stop at this number of failed nodes]:n:' \
                    '--within[time limit for a node that is awake]:duration:' \
                    '--settle[how long a pod must be ready]:duration:' \
                    '--order[order of the nodes; hash spreads them, and is the same each time]:order:(hash name)' \
                    '--ahead[at the end, also change sleeping nodes, which see the change when they wake]' \
                    '--wait[continue until the last sleeping node has woken]' \
                    '--interval[interval of requests to the cluster]:duration:' \
                    '--dry-run[print the requests of the first round and send none]' \
                    '(-o --output)'{-o,--output}'[print the status as JSON or YAML]:output:(json yaml)' \
                    '(-n --namespace)'{-n,--namespace}'[namespace of the ConfigMaps]:namespace:' \
                    '--kubeconfig[kubeconfig]:file:_files' \
                    '--context[context of the kubeconfig]:name:' \
                    '--traffic[print the requests and bytes that it took]' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            completion)
                _arguments -s '2::shell:(bash zsh fish)' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            version)
                _arguments -s '2:: :' \
                    '(-o --output)'{-o,--output}'[print it as JSON]:output:(json)' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
            help)
                _arguments -s '2::command:(status pods describe logs exec attach port-forward events claims jobs devices images top apply diff cp delete wait restart rerun stop start rollback hold confirm sync validate doctor runtime-config upgrade config support seal page-token join leave replace fleet rollout completion version help)' \
                    '(-h --help)'{-h,--help}'[print help]'
                return ;;
        esac
    fi
    local -a commands flags
    commands=(
        'status:show the node, its runtime, its pod sources and its last errors'
        'pods:list the pods of this node'
        'describe:show everything about one pod'
        'logs:print the log of a container'
        'exec:run a command in a container'
        'attach:show new output of a container, and pass input to it'
        'port-forward:forward ports of this machine to a pod'
        'events:list recent events of this node or of one pod'
        'claims:list the claims that pods use, and how full they are'
        'jobs:list the Jobs and CronJobs of manifests, and how far they are'
        'devices:list devices, their attributes and who has them'
        'images:list, import, pull or remove images, or make a delta of two archives'
        'top:show CPU and memory usage of the node and its pods'
        'apply:run the pods of a manifest on this node and keep them'
        'diff:show what coracle apply would change'
        'cp:copy files from or to a container'
        'delete:stop and remove pods that were applied'
        'wait:wait until pods are ready, done or gone'
        'restart:restart the containers of a pod in place'
        'rerun:run a finished pod again'
        'stop:stop a pod until it is started'
        'start:run a pod that coracle stop has stopped'
        'rollback:run an earlier version of a pod'
        'hold:keep the running version of a pod even if its manifest changes'
        'confirm:run the manifest of a pod and accept it'
        'sync:exchange everything with the cluster now'
        'validate:check manifests without running them'
        'doctor:check what this machine needs to run pods'
        'runtime-config:print a configuration of the runtime for a board with little memory'
        'upgrade:try another version of the agent, and return to the former one if it fails'
        'config:try another configuration of the agent, and return to the former one if it fails'
        'support:write an archive about this node for support'
        'seal:seal Secrets of manifests for one board'
        'page-token:create a token for the controls of the status page'
        'join:make this machine a node of a cluster'
        'leave:remove this machine from its cluster'
        'replace:take the role of a board that is gone'
        'fleet:list the nodes of a cluster, with a kubeconfig'
        'rollout:bring a change to the nodes of a cluster in steps'
        'completion:print a completion script for bash, zsh or fish'
        'version:print the version'
        'help:print this help or the help of a command'
    )
    flags=(
        '--pod-manifest-path[manifests, a directory or one file]:path:_files'
        '--file-check-frequency[interval at which manifests are read even without a change]:duration:'
        '--manifest-url[a manifest at an HTTP, HTTPS or OCI URL]:url:'
        '*--manifest-url-header[headers of requests for --manifest-url]:name\:value,...:'
        '--manifest-url-ca-file[CA certificates for --manifest-url]:file:_files'
        '--manifest-public-key[Ed25519 public key that verifies the manifest of --manifest-url]:file:_files'
        '--manifest-plain-signatures[accept signatures without audience and serial number, which can be replayed]'
        '--http-check-frequency[interval of requests for --manifest-url]:duration:'
        '--max-pods[highest number of pods]:n:'
        '--node-labels[labels of the node, for node selectors and affinity]:key=value,...:'
        '--pod-max-pids[highest number of processes of one pod, -1 without a limit]:n:'
        '--seccomp-default[use the RuntimeDefault seccomp profile for pods without a profile]'
        '--container-runtime-endpoint[socket of the container runtime]:socket:_files'
        '--image-service-endpoint[socket of the image service]:socket:_files'
        '--runtime-profile[lean lets static pods share shims, for boards with little memory]:runtime-profile:(default lean)'
        '--runtime-request-timeout[timeout of runtime requests]:duration:'
        '--serialize-image-pulls=-[pull one image at a time]::bool:(true false)'
        '--registry-qps[image pulls per second, 0 without a limit]:n:'
        '--registry-burst[image pulls at once]:n:'
        '--image-credential-provider-config[CredentialProviderConfig of programs for registries]:path:_files'
        '--image-credential-provider-bin-dir[directory of the credential provider programs]:directory:_files -/'
        '--image-archives[directory of image archives to import and keep]:directory:_files -/'
        '--strict-image-pull-policy[fail a pull with policy Always while the registry is unreachable]'
        '--image-gc-high-threshold[disk usage in percent that starts the removal of unused images, 100 for never]:n:'
        '--image-gc-low-threshold[disk usage in percent that stops the removal of unused images]:n:'
        '--eviction-hard[thresholds below which the agent evicts pods at once]:signal<amount,...:'
        '--eviction-soft[thresholds below which the agent evicts pods after the grace period]:signal<amount,...:'
        '--eviction-soft-grace-period[grace periods of --eviction-soft]:signal=duration,...:'
        '--evict-static-pods[also evict static pods without a critical priority]'
        '--hostname-override[name of the node]:name:'
        '--name-template[template that names the node after its board, such as edge-{serial}]:template:'
        '--node-ip[addresses of the node]:ip[,ip]:'
        '--register-node=-[create the Node object if the cluster has none]::bool:(true false)'
        '--register-with-taints[taints of a Node object that is created]:key=value\:effect,...:'
        '--node-status-max-images[number of images in the node status, -1 for all]:n:'
        '--cloud-provider[a cloud controller manager sets the node addresses]:cloud-provider:(external)'
        '--cluster-dns[DNS servers of pods with the cluster'\''s DNS policy]:ip[,ip]:'
        '--cluster-domain[DNS domain of the cluster]:name:'
        '--leave-kernel-parameters[do not set vm.overcommit_memory, kernel.panic and the like]'
        '--resolv-conf[resolver settings that pods inherit]:path:_files'
        '--kubeconfig[credentials of the node; needed to run pods of the cluster]:path:_files'
        '--join-file[names a cluster that this machine joins; empty for none]:file:_files'
        '--bootstrap-kubeconfig[credentials for the first certificate request]:path:_files'
        '--rotate-certificates[renew the client certificate of the node before it expires]'
        '--cert-dir[directory of certificates and keys]:directory:_files -/'
        '--offline-key-file[key that encrypts Secrets and tokens in the offline store]:file:_files'
        '--offline-plain-secrets=-[store Secrets and tokens unencrypted where there is no key]::bool:(true false)'
        '--enable-server=-[serve the kubelet API]::bool:(true false)'
        '--address[address of the kubelet API]:ip:'
        '--port[port of the kubelet API]:n:'
        '--tls-cert-file[serving certificate]:file:_files'
        '--tls-private-key-file[key of the serving certificate]:file:_files'
        '--rotate-server-certificates[request the serving certificate from the cluster, and renew it]'
        '--client-ca-file[CA certificates of clients]:file:_files'
        '--anonymous-auth=-[treat clients without credentials as the anonymous user]::bool:(true false)'
        '--authorization-mode[ask the cluster what a client may do, or allow all authenticated clients]:authorization-mode:(Webhook AlwaysAllow)'
        '--enable-debugging-handlers=-[serve logs, exec, attach and port-forward]::bool:(true false)'
        '--read-only-port[port for health, pods and metrics without TLS, 0 for none]:n:'
        '--cgroup-driver[driver of control groups]:cgroup-driver:(cgroupfs systemd)'
        '--cgroups-per-qos=-[create control groups for pods and QoS classes]::bool:(true false)'
        '--cpu-cfs-quota=-[enforce CPU limits of containers]::bool:(true false)'
        '--fail-swap-on=-[refuse to start if swap is on]::bool:(true false)'
        '--config[KubeletConfiguration, in YAML or JSON]:file:_files'
        '--coracle-config[settings that KubeletConfiguration has no fields for, in YAML]:file:_files'
        '--config-dir[directory of *.conf files that override --config, in the order of their names]:directory:_files -/'
        '--root-dir[directory of the state]:directory:_files -/'
        '--local-path-dir[directory for PersistentVolumeClaims of manifests]:directory:_files -/'
        '--local-socket[socket of the agent]:path:_files'
        '--healthz-port[port of GET /healthz, 0 for none]:n:'
        '--healthz-bind-address[address of GET /healthz]:ip:'
        '--page-port[port of a status page for browsers (4194 is customary), 0 for none]:n:'
        '--page-address[address of the status page]:ip:'
        '--lock-file[file that is locked while this process runs]:path:_files'
        '--watchdog-device[watchdog device that is kept alive while the sync loop runs]:path:_files'
        '(-v --v)'{-v,--v}'[log verbosity, 4 and above for debug lines]:n:'
        '(-h --help)'{-h,--help}'[print this help]'
        '--version[print the version]'
    )
    if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then
        _describe command commands
    else
        _arguments $flags
    fi
}

# Found by its name it is the completion itself; read with `source` it declares its function.
if [[ $funcstack[1] == _coracle ]]; then _coracle "$@"; else compdef _coracle coracle; fi
