# Completion of coracle(8). Generated from src/cli/command_table.rs: UPDATE_GOLDEN=1 cargo test --test manual

# What completes the value of the flag $1; empty if it has no value.
_coracle_value() {
    case $1 in
        " --pod-manifest-path" | \
            " --manifest-url-ca-file" | \
            " --manifest-public-key" | \
            " --container-runtime-endpoint" | \
            " --image-service-endpoint" | \
            " --image-credential-provider-config" | \
            " --resolv-conf" | \
            " --kubeconfig" | \
            " --join-file" | \
            " --bootstrap-kubeconfig" | \
            " --offline-key-file" | \
            " --tls-cert-file" | \
            " --tls-private-key-file" | \
            " --client-ca-file" | \
            " --config" | \
            " --coracle-config" | \
            " --local-socket" | \
            " --lock-file" | \
            " --watchdog-device" | \
            "status --local-socket" | \
            "pods --local-socket" | \
            "describe --local-socket" | \
            "logs --local-socket" | \
            "exec --local-socket" | \
            "attach --local-socket" | \
            "port-forward --local-socket" | \
            "events --local-socket" | \
            "claims --local-socket" | \
            "jobs --local-socket" | \
            "devices --local-socket" | \
            "images --local-socket" | \
            "top --local-socket" | \
            "apply -f" | "apply --filename" | \
            "apply --local-socket" | \
            "diff -f" | "diff --filename" | \
            "diff --local-socket" | \
            "cp --local-socket" | \
            "delete -f" | "delete --filename" | \
            "delete --local-socket" | \
            "wait --local-socket" | \
            "restart --local-socket" | \
            "rerun --local-socket" | \
            "stop --local-socket" | \
            "start --local-socket" | \
            "rollback --local-socket" | \
            "hold --local-socket" | \
            "confirm --local-socket" | \
            "sync --local-socket" | \
            "validate -f" | "validate --filename" | \
            "doctor --local-socket" | \
            "runtime-config --shim" | \
            "runtime-config --apply" | \
            "runtime-config --file" | \
            "runtime-config --local-socket" | \
            "upgrade --signature" | \
            "upgrade --public-key" | \
            "upgrade --local-socket" | \
            "config --local-socket" | \
            "support -o" | "support --output" | \
            "support --local-socket" | \
            "seal -f" | "seal --filename" | \
            "seal --local-socket" | \
            "replace --local-socket" | \
            "fleet --kubeconfig" | \
            "rollout --kubeconfig")
            value=files ;;
        " --file-check-frequency" | \
            " --manifest-url" | \
            " --manifest-url-header" | \
            " --http-check-frequency" | \
            " --max-pods" | \
            " --node-labels" | \
            " --pod-max-pids" | \
            " --runtime-request-timeout" | \
            " --registry-qps" | \
            " --registry-burst" | \
            " --image-gc-high-threshold" | \
            " --image-gc-low-threshold" | \
            " --eviction-hard" | \
            " --eviction-soft" | \
            " --eviction-soft-grace-period" | \
            " --hostname-override" | \
            " --name-template" | \
            " --node-ip" | \
            " --register-with-taints" | \
            " --node-status-max-images" | \
            " --cluster-dns" | \
            " --cluster-domain" | \
            " --address" | \
            " --port" | \
            " --read-only-port" | \
            " --healthz-port" | \
            " --healthz-bind-address" | \
            " --page-port" | \
            " --page-address" | \
            " -v" | " --v" | \
            "pods -l" | "pods --selector" | \
            "pods -n" | "pods --namespace" | \
            "describe -n" | "describe --namespace" | \
            "logs -l" | "logs --selector" | \
            "logs --tail" | \
            "logs --since" | \
            "logs --since-time" | \
            "logs --limit-bytes" | \
            "logs -n" | "logs --namespace" | \
            "exec -n" | "exec --namespace" | \
            "attach -n" | "attach --namespace" | \
            "port-forward --address" | \
            "port-forward -n" | "port-forward --namespace" | \
            "events -n" | "events --namespace" | \
            "claims -n" | "claims --namespace" | \
            "jobs -n" | "jobs --namespace" | \
            "top -n" | "top --namespace" | \
            "cp -n" | "cp --namespace" | \
            "delete -n" | "delete --namespace" | \
            "wait --timeout" | \
            "wait -n" | "wait --namespace" | \
            "restart -n" | "restart --namespace" | \
            "rerun -n" | "rerun --namespace" | \
            "stop -n" | "stop --namespace" | \
            "start -n" | "start --namespace" | \
            "rollback --to" | \
            "rollback -n" | "rollback --namespace" | \
            "hold -n" | "hold --namespace" | \
            "confirm -n" | "confirm --namespace" | \
            "runtime-config --runtime-version" | \
            "runtime-config --pause-image" | \
            "runtime-config --crun" | \
            "runtime-config --restart-command" | \
            "runtime-config --within" | \
            "upgrade --within" | \
            "config --within" | \
            "seal --to" | \
            "join --token" | \
            "join --discovery-token-ca-cert-hash" | \
            "join --node-name" | \
            "join --name-template" | \
            "join --timeout" | \
            "fleet -l" | "fleet --selector" | \
            "fleet --context" | \
            "rollout --daemonset" | \
            "rollout --agent" | \
            "rollout --config" | \
            "rollout -l" | "rollout --selector" | \
            "rollout --first" | \
            "rollout --then" | \
            "rollout --max-unavailable" | \
            "rollout --stop-after" | \
            "rollout --within" | \
            "rollout --settle" | \
            "rollout --interval" | \
            "rollout -n" | "rollout --namespace" | \
            "rollout --context")
            value=text ;;
        " --manifest-plain-signatures" | \
            " --seccomp-default" | \
            " --serialize-image-pulls" | \
            " --strict-image-pull-policy" | \
            " --evict-static-pods" | \
            " --register-node" | \
            " --leave-kernel-parameters" | \
            " --rotate-certificates" | \
            " --offline-plain-secrets" | \
            " --enable-server" | \
            " --rotate-server-certificates" | \
            " --anonymous-auth" | \
            " --enable-debugging-handlers" | \
            " --cgroups-per-qos" | \
            " --cpu-cfs-quota" | \
            " --fail-swap-on")
            value=switch ;;
        " --runtime-profile")
            value='default lean' ;;
        " --image-credential-provider-bin-dir" | \
            " --image-archives" | \
            " --cert-dir" | \
            " --config-dir" | \
            " --root-dir" | \
            " --local-path-dir" | \
            "runtime-config --cni-bin-dir" | \
            "runtime-config --root-dir" | \
            "upgrade --root-dir" | \
            "config --root-dir" | \
            "page-token --root-dir" | \
            "join --kubernetes-dir" | \
            "join --root-dir" | \
            "leave --kubernetes-dir" | \
            "leave --root-dir" | \
            "replace --from" | \
            "replace --kubernetes-dir" | \
            "replace --root-dir")
            value=directories ;;
        " --cloud-provider")
            value='external' ;;
        " --authorization-mode")
            value='Webhook AlwaysAllow' ;;
        " --cgroup-driver" | \
            "runtime-config --cgroup-driver")
            value='cgroupfs systemd' ;;
        "status -o" | "status --output" | \
            "events -o" | "events --output" | \
            "rollout -o" | "rollout --output")
            value='json yaml' ;;
        "pods -o" | "pods --output" | \
            "fleet -o" | "fleet --output")
            value='wide json yaml name jsonpath=' ;;
        "logs -c" | "logs --container" | \
            "exec -c" | "exec --container" | \
            "attach -c" | "attach --container" | \
            "cp -c" | "cp --container" | \
            "restart -c" | "restart --container")
            value=containers ;;
        "jobs -o" | "jobs --output" | \
            "devices -o" | "devices --output" | \
            "top -o" | "top --output" | \
            "doctor -o" | "doctor --output" | \
            "upgrade -o" | "upgrade --output" | \
            "version -o" | "version --output")
            value='json' ;;
        "images -o" | "images --output")
            value='wide json' ;;
        "wait --until")
            value='ready done delete' ;;
        "rollout --order")
            value='hash name' ;;
        *)
            value='' ;;
    esac
}

# The pods, their containers and the images of this node, if its agent answers.
_coracle_pods() {
    local names
    names=$(coracle pods -o name 2>/dev/null)
    words+=" ${names//pod\//}"
}

_coracle_containers() {
    local word
    for word in "${COMP_WORDS[@]:2}"; do
        [[ -z $word || $word == -* ]] && continue
        words=$(coracle pods "$word" -o jsonpath='{.spec.initContainers[*].name} {.spec.containers[*].name}' 2>/dev/null) && return
    done
    words=$(coracle pods -o jsonpath='{.items[*].spec.containers[*].name}' 2>/dev/null)
}

_coracle_images() {
    compopt +o filenames 2>/dev/null
    words=$(coracle images 2>/dev/null | while read -r name _; do
        [[ $name == IMAGE || $name == No || $name == '<none>' ]] || echo "$name"; done)
    # The shell splits words at colons.
    local at=$COMP_CWORD
    while ((at > 2)) && [[ ${COMP_WORDS[at]} == : || ${COMP_WORDS[at - 1]} == : ]]; do
        current=${COMP_WORDS[--at]}$current
    done
    [[ $current != *:* ]] || prefix=${current%:*}:
}

_coracle() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' value
    local last place=0 first='' prefix='' at
    # Where = ends a word, a value stands two words after its flag.
    [[ $current != = ]] || current=''
    [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
    ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}
    [[ $command != -* ]] || command=''
    COMPREPLY=()

    _coracle_value "$command $previous"
    case $value in
        '') ;;
        files) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        directories) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        text) return ;;
        containers) _coracle_containers ;;
        switch) [[ $current == -* ]] || words='true false' ;;
        *) words=$value ;;
    esac

    # place counts the arguments before this one, first is the first of them.
    for ((at = 2; at < COMP_CWORD; at++)); do
        last=${COMP_WORDS[at]}
        if [[ $last == -* ]]; then
            _coracle_value "$command $last"
            [[ -z $value ]] || ((++at))
            [[ ${COMP_WORDS[at]} != = ]] || ((++at))
        else
            ((place++)) || first=$last
        fi
    done
    if [[ -z $words ]]; then
        case $command in
            status)
                words='-o --output --local-socket -h --help'
                ;;
            pods)
                words='-A --all-namespaces -o --output -l --selector -w --watch -n --namespace --local-socket -h --help'
                [[ $current == -* ]] || { words=''; _coracle_pods; }
                ;;
            describe)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            logs)
                words='-c --container --all-containers -l --selector -f --follow -p --previous --tail --since --since-time -t --timestamps --limit-bytes -n --namespace --local-socket -h --help'
                [[ $current == -* ]] || { words=''; _coracle_pods; }
                ;;
            exec)
                words='-i --stdin -t --tty -c --container -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            attach)
                words='-i --stdin -t --tty -c --container -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            port-forward)
                words='--address -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            events)
                words='-o --output -A --all-namespaces -w --watch -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            claims)
                words='-n --namespace --local-socket -h --help'
                ;;
            jobs)
                words='-o --output -n --namespace --local-socket -h --help'
                ;;
            devices)
                words='-o --output --local-socket -h --help'
                ;;
            images)
                words='-o --output --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || words='delta import prune pull remove'
                [[ $current == -* || $first != @(import|delta) ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                [[ $current == -* || $first != @(remove|rm) ]] || _coracle_images
                ;;
            top)
                words='-w --watch -o --output -n --namespace --local-socket -h --help'
                ;;
            apply)
                words='-f --filename --dry-run --local-socket -h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            diff)
                words='-f --filename --local-socket -h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            cp)
                words='-c --container -n --namespace --local-socket -h --help'
                [[ $current == -* ]] || { words=$(compgen -f -- "$current"); compopt -o nospace 2>/dev/null; _coracle_pods; }
                ;;
            delete)
                words='-f --filename --wait -n --namespace --local-socket -h --help'
                [[ $current == -* ]] || { words=''; _coracle_pods; }
                ;;
            wait)
                words='--until --timeout -n --namespace --local-socket -h --help'
                [[ $current == -* ]] || { words=''; _coracle_pods; }
                ;;
            restart)
                words='-c --container --wait -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            rerun)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            stop)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            start)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            rollback)
                words='--to -n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            hold)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            confirm)
                words='-n --namespace --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || { words=''; _coracle_pods; }
                ;;
            sync)
                words='--wait --local-socket -h --help'
                ;;
            validate)
                words='-f --filename -h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            doctor)
                words='-o --output --first-start --local-socket -h --help'
                ;;
            runtime-config)
                words='--unit --runtime-version --cgroup-driver --pause-image --cni-bin-dir --crun --shim --apply --file --restart-command --within --root-dir --local-socket -h --help'
                [[ $current == -* || $place -ne 0 ]] || words='containerd crio'
                ;;
            upgrade)
                words='--signature --public-key --unsigned --allow-downgrade --within --wait -o --output --local-socket --root-dir -h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            config)
                words='--within --wait --local-socket --root-dir -h --help'
                [[ $current == -* || $place -ne 0 ]] || words='apply'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            support)
                words='-o --output --no-container-logs --local-socket -h --help'
                ;;
            seal)
                words='-f --filename --to --local-socket -h --help'
                ;;
            page-token)
                words='--remove --root-dir -h --help'
                ;;
            join)
                words='--token --discovery-token-ca-cert-hash --discovery-token-unsafe-skip-ca-verification --node-name --name-template --no-start --timeout --kubernetes-dir --root-dir -h --help'
                ;;
            leave)
                words='--delete-node --no-restart --kubernetes-dir --root-dir -h --help'
                ;;
            replace)
                words='--from --force --no-start --local-socket --kubernetes-dir --root-dir -h --help'
                ;;
            fleet)
                words='-l --selector -o --output --kubeconfig --context --traffic -h --help'
                ;;
            rollout)
                words='--daemonset --agent --config -l --selector --first --then --max-unavailable --stop-after --within --settle --order --ahead --wait --interval --dry-run -o --output -n --namespace --kubeconfig --context --traffic -h --help'
                [[ $current == -* || $place -ne 0 ]] || words='abort pause resume rights start status'
                ;;
            completion)
                words='-h --help'
                [[ $current == -* || $place -ne 0 ]] || words='bash zsh fish'
                ;;
            version)
                words='-o --output -h --help'
                ;;
            help)
                words='-h --help'
                [[ $current == -* || $place -ne 0 ]] || words='status pods describe logs exec attach port-forward events claims jobs devices images top apply diff cp delete wait restart rerun stop start rollback hold confirm sync validate doctor runtime-config upgrade config support seal page-token join leave replace fleet rollout completion version help'
                ;;
            *)
                words='--pod-manifest-path --file-check-frequency --manifest-url --manifest-url-header --manifest-url-ca-file --manifest-public-key --manifest-plain-signatures --http-check-frequency --max-pods --node-labels --pod-max-pids --seccomp-default --container-runtime-endpoint --image-service-endpoint --runtime-profile --runtime-request-timeout --serialize-image-pulls --registry-qps --registry-burst --image-credential-provider-config --image-credential-provider-bin-dir --image-archives --strict-image-pull-policy --image-gc-high-threshold --image-gc-low-threshold --eviction-hard --eviction-soft --eviction-soft-grace-period --evict-static-pods --hostname-override --name-template --node-ip --register-node --register-with-taints --node-status-max-images --cloud-provider --cluster-dns --cluster-domain --leave-kernel-parameters --resolv-conf --kubeconfig --join-file --bootstrap-kubeconfig --rotate-certificates --cert-dir --offline-key-file --offline-plain-secrets --enable-server --address --port --tls-cert-file --tls-private-key-file --rotate-server-certificates --client-ca-file --anonymous-auth --authorization-mode --enable-debugging-handlers --read-only-port --cgroup-driver --cgroups-per-qos --cpu-cfs-quota --fail-swap-on --config --coracle-config --config-dir --root-dir --local-path-dir --local-socket --healthz-port --healthz-bind-address --page-port --page-address --lock-file --watchdog-device -v --v -h --help --version'
                [[ $COMP_CWORD -gt 1 || $current == -* ]] || words='status pods describe logs exec attach port-forward events claims jobs devices images top apply diff cp delete wait restart rerun stop start rollback hold confirm sync validate doctor runtime-config upgrade config support seal page-token join leave replace fleet rollout completion version help'
                ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

complete -o filenames -F _coracle coracle
