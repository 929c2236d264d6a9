# Completion of coracle(8). Generated from src/cli/command_table.rs: UPDATE_GOLDEN=1 cargo test --test manual

_coracle() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' words=''
    # Where = ends a word, a value stands two words after its flag.
    [[ $current != = ]] || current=''
    [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
    ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}
    [[ $command != -* ]] || command=''
    COMPREPLY=()

    case "$command $previous" in
        " --pod-manifest-path" | \
            " --manifest-url-ca-file" | \
            " --manifest-public-key" | \
            " --container-runtime-endpoint" | \
            " --image-service-endpoint" | \
            " --image-credential-provider-config" | \
            " --resolv-conf" | \
            " --kubeconfig" | \
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
            "runtime-config --local-socket" | \
            "upgrade --signature" | \
            "upgrade --public-key" | \
            "upgrade --local-socket" | \
            "config --local-socket" | \
            "support -o" | "support --output" | \
            "support --local-socket")
            mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
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
            "logs -c" | "logs --container" | \
            "logs -l" | "logs --selector" | \
            "logs --tail" | \
            "logs --since" | \
            "logs --since-time" | \
            "logs --limit-bytes" | \
            "logs -n" | "logs --namespace" | \
            "exec -c" | "exec --container" | \
            "exec -n" | "exec --namespace" | \
            "attach -c" | "attach --container" | \
            "attach -n" | "attach --namespace" | \
            "port-forward --address" | \
            "port-forward -n" | "port-forward --namespace" | \
            "events -n" | "events --namespace" | \
            "top -n" | "top --namespace" | \
            "cp -c" | "cp --container" | \
            "cp -n" | "cp --namespace" | \
            "delete -n" | "delete --namespace" | \
            "wait --timeout" | \
            "wait -n" | "wait --namespace" | \
            "restart -c" | "restart --container" | \
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
            "upgrade --within" | \
            "config --within" | \
            "join --token" | \
            "join --discovery-token-ca-cert-hash" | \
            "join --node-name" | \
            "join --timeout")
            return ;;
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
            [[ $current == -* ]] || words='true false' ;;
        " --runtime-profile")
            words='default lean' ;;
        " --image-credential-provider-bin-dir" | \
            " --image-archives" | \
            " --cert-dir" | \
            " --config-dir" | \
            " --root-dir" | \
            "runtime-config --cni-bin-dir" | \
            "upgrade --root-dir" | \
            "config --root-dir" | \
            "page-token --root-dir" | \
            "join --kubernetes-dir" | \
            "join --root-dir" | \
            "leave --kubernetes-dir" | \
            "leave --root-dir")
            mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        " --cloud-provider")
            words='external' ;;
        " --authorization-mode")
            words='Webhook AlwaysAllow' ;;
        " --cgroup-driver" | \
            "runtime-config --cgroup-driver")
            words='cgroupfs systemd' ;;
        "status -o" | "status --output" | \
            "events -o" | "events --output")
            words='json yaml' ;;
        "pods -o" | "pods --output")
            words='wide json yaml name jsonpath=' ;;
        "devices -o" | "devices --output" | \
            "top -o" | "top --output" | \
            "doctor -o" | "doctor --output" | \
            "upgrade -o" | "upgrade --output" | \
            "version -o" | "version --output")
            words='json' ;;
        "images -o" | "images --output")
            words='wide json' ;;
        "wait --until")
            words='ready done delete' ;;
    esac

    if [[ -z $words && $current != -* && $COMP_CWORD -eq 2 ]]; then
        # The pods of this node, if its agent answers.
        case $command in
            pods | describe | logs | exec | attach | port-forward | events | cp | delete | wait | restart | rerun | stop | start | rollback | hold | confirm)
                words=$(coracle pods 2>/dev/null | while read -r namespace name _; do
                    [[ $namespace == NAMESPACE || $namespace == No ]] || echo "$name"; done)
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); return ;;
        esac
    fi
    if [[ -z $words ]]; then
        case $command in
            status)
                words='-o --output --local-socket -h --help'
                ;;
            pods)
                words='-A --all-namespaces -o --output -l --selector -w --watch -n --namespace --local-socket -h --help'
                ;;
            describe)
                words='-n --namespace --local-socket -h --help'
                ;;
            logs)
                words='-c --container --all-containers -l --selector -f --follow -p --previous --tail --since --since-time -t --timestamps --limit-bytes -n --namespace --local-socket -h --help'
                ;;
            exec)
                words='-i --stdin -t --tty -c --container -n --namespace --local-socket -h --help'
                ;;
            attach)
                words='-i --stdin -t --tty -c --container -n --namespace --local-socket -h --help'
                ;;
            port-forward)
                words='--address -n --namespace --local-socket -h --help'
                ;;
            events)
                words='-o --output -A --all-namespaces -w --watch -n --namespace --local-socket -h --help'
                ;;
            devices)
                words='-o --output --local-socket -h --help'
                ;;
            images)
                words='-o --output --local-socket -h --help'
                [[ $COMP_CWORD -ne 2 || $current == -* ]] || words='delta import prune pull remove'
                [[ ${COMP_WORDS[2]} != @(import|delta) || $COMP_CWORD -lt 3 || $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
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
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            delete)
                words='-f --filename --wait -n --namespace --local-socket -h --help'
                ;;
            wait)
                words='--until --timeout -n --namespace --local-socket -h --help'
                ;;
            restart)
                words='-c --container --wait -n --namespace --local-socket -h --help'
                ;;
            rerun)
                words='-n --namespace --local-socket -h --help'
                ;;
            stop)
                words='-n --namespace --local-socket -h --help'
                ;;
            start)
                words='-n --namespace --local-socket -h --help'
                ;;
            rollback)
                words='--to -n --namespace --local-socket -h --help'
                ;;
            hold)
                words='-n --namespace --local-socket -h --help'
                ;;
            confirm)
                words='-n --namespace --local-socket -h --help'
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
                words='--unit --runtime-version --cgroup-driver --pause-image --cni-bin-dir --crun --shim --local-socket -h --help'
                [[ $COMP_CWORD -ne 2 || $current == -* ]] || words='containerd crio'
                ;;
            upgrade)
                words='--signature --public-key --unsigned --allow-downgrade --within --wait -o --output --local-socket --root-dir -h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            config)
                words='--within --wait --local-socket --root-dir -h --help'
                [[ $COMP_CWORD -ne 2 || $current == -* ]] || words='apply'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            support)
                words='-o --output --no-container-logs --local-socket -h --help'
                ;;
            page-token)
                words='--remove --root-dir -h --help'
                ;;
            join)
                words='--token --discovery-token-ca-cert-hash --discovery-token-unsafe-skip-ca-verification --node-name --no-start --timeout --kubernetes-dir --root-dir -h --help'
                ;;
            leave)
                words='--delete-node --no-restart --kubernetes-dir --root-dir -h --help'
                ;;
            completion)
                words='-h --help'
                [[ $COMP_CWORD -ne 2 || $current == -* ]] || words='bash zsh fish'
                ;;
            version)
                words='-o --output -h --help'
                ;;
            help)
                words='-h --help'
                [[ $COMP_CWORD -ne 2 || $current == -* ]] || words='status pods describe logs exec attach port-forward events devices images top apply diff cp delete wait restart rerun stop start rollback hold confirm sync validate doctor runtime-config upgrade config support page-token join leave completion version help'
                ;;
            *)
                words='--pod-manifest-path --file-check-frequency --manifest-url --manifest-url-header --manifest-url-ca-file --manifest-public-key --manifest-plain-signatures --http-check-frequency --max-pods --node-labels --pod-max-pids --seccomp-default --container-runtime-endpoint --image-service-endpoint --runtime-profile --runtime-request-timeout --serialize-image-pulls --registry-qps --registry-burst --image-credential-provider-config --image-credential-provider-bin-dir --image-archives --strict-image-pull-policy --image-gc-high-threshold --image-gc-low-threshold --eviction-hard --eviction-soft --eviction-soft-grace-period --evict-static-pods --hostname-override --node-ip --register-node --register-with-taints --node-status-max-images --cloud-provider --cluster-dns --cluster-domain --leave-kernel-parameters --resolv-conf --kubeconfig --bootstrap-kubeconfig --rotate-certificates --cert-dir --offline-key-file --offline-plain-secrets --enable-server --address --port --tls-cert-file --tls-private-key-file --rotate-server-certificates --client-ca-file --anonymous-auth --authorization-mode --enable-debugging-handlers --read-only-port --cgroup-driver --cgroups-per-qos --cpu-cfs-quota --fail-swap-on --config --coracle-config --config-dir --root-dir --local-socket --healthz-port --healthz-bind-address --page-port --page-address --lock-file --watchdog-device -v --v -h --help --version'
                [[ $COMP_CWORD -gt 1 || $current == -* ]] || words='status pods describe logs exec attach port-forward events devices images top apply diff cp delete wait restart rerun stop start rollback hold confirm sync validate doctor runtime-config upgrade config support page-token join leave completion version help'
                ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o filenames -F _coracle coracle
