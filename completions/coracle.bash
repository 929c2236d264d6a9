# bash completion of coracle(8). tests/manual.rs holds it against the program's own help.

_coracle() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command='' words=''
    # Where = ends a word, a value stands two words after its flag.
    [[ $current != = ]] || current=''
    [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD - 2]}
    ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}
    COMPREPLY=()

    case $previous in
        -o | --output) words='json yaml'; [[ $command != pods ]] || words='wide json yaml'; [[ $command != top && $command != version ]] || words='json'; [[ $command != images ]] || words='wide json' ;;
        --cgroup-driver) words='cgroupfs systemd' ;;
        --cloud-provider) words='external' ;;
        --authorization-mode) words='Webhook AlwaysAllow' ;;
        --serialize-image-pulls | --cgroups-per-qos | --cpu-cfs-quota | --fail-swap-on | --seccomp-default | \
            --strict-image-pull-policy | --evict-static-pods | --register-node | --leave-kernel-parameters | --rotate-certificates | \
            --enable-server | --rotate-server-certificates | --anonymous-auth | --enable-debugging-handlers | --offline-plain-secrets)
            [[ $current == -* ]] || words='true false' ;;
        --config | --coracle-config | --lock-file | --manifest-url-ca-file | --manifest-public-key | --pod-manifest-path | --resolv-conf | --watchdog-device | --offline-key-file | --local-socket | \
            --container-runtime-endpoint | --image-service-endpoint | --image-credential-provider-config | --kubeconfig | --bootstrap-kubeconfig | \
            --tls-cert-file | --tls-private-key-file | --client-ca-file)
            mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --config-dir | --root-dir | --cert-dir | --kubernetes-dir | --image-archives | --image-credential-provider-bin-dir) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        --filename) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
        --address | --token | --discovery-token-ca-cert-hash | --node-name | --timeout) return ;;
        -c | --container | --tail | --since | --limit-bytes | -n | --namespace | --file-check-frequency | --manifest-url | --manifest-url-header | --http-check-frequency | --max-pods | --node-labels | --pod-max-pids | --runtime-request-timeout | --registry-qps | \
            --registry-burst | --hostname-override | --node-ip | --register-with-taints | --node-status-max-images | --cluster-dns | --cluster-domain | --healthz-port | \
            --page-port | --page-address | --read-only-port | \
            --healthz-bind-address | --image-gc-high-threshold | --image-gc-low-threshold | -v | --v)
            return ;;
    esac

    if [[ -z $words && $current != -* && $COMP_CWORD -eq 2 ]]; then
        # The pods of this node, where it tells.
        case $command in
            attach | confirm | delete | describe | events | exec | hold | logs | port-forward | restart | rollback)
                words=$(coracle pods 2>/dev/null | while read -r namespace name _; do
                    [[ $namespace == NAMESPACE || $namespace == No ]] || echo "$name"; done)
                mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); return ;;
        esac
    fi
    if [[ -z $words ]]; then
        case $command in
            apply) words='-f --filename --local-socket -h --help' ;;
            delete) words='--wait -n --namespace --local-socket -h --help' ;;
            restart) words='-c --container --wait -n --namespace --local-socket -h --help' ;;
            completion) words='-h --help'; [[ $current == -* ]] || words='bash zsh fish' ;;
            images) words='-o --output --local-socket -h --help'; [[ $current == -* ]] || words='import remove'
                [[ " ${COMP_WORDS[*]} " != *' import '* || $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; } ;;
            attach | exec) words='-i --stdin -t --tty -c --container -n --namespace --local-socket -h --help' ;;
            port-forward) words='--address -n --namespace --local-socket -h --help' ;;
            confirm | describe | hold) words='-n --namespace --local-socket -h --help' ;;
            rollback) words='--to -n --namespace --local-socket -h --help' ;;
            logs)
                words='-c --container -f --follow -p --previous --tail --since --timestamps --limit-bytes -n --namespace
                    --local-socket -h --help'
                ;;
            events | pods) words='-o --output -n --namespace --local-socket -h --help' ;;
            top) words='-o --output -n --namespace -w --watch --local-socket -h --help' ;;
            sync) words='--wait --local-socket -h --help' ;;
            status) words='-o --output --local-socket -h --help' ;;
            join)
                words='--token --discovery-token-ca-cert-hash --discovery-token-unsafe-skip-ca-verification --node-name --no-start
                    --timeout --kubernetes-dir --root-dir -h --help'
                ;;
            leave) words='--delete-node --no-restart --kubernetes-dir --root-dir -h --help' ;;
            validate)
                words='-h --help'
                [[ $current == -* ]] || { mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; }
                ;;
            version) words='-o --output -h --help' ;;
            help) words='apply attach completion confirm delete describe events exec hold images join leave logs pods port-forward restart rollback status sync top validate version' ;;
            *)
                words='--pod-manifest-path --file-check-frequency --manifest-url --manifest-url-header --manifest-url-ca-file
                    --manifest-public-key --http-check-frequency --max-pods --node-labels --pod-max-pids --seccomp-default
                    --container-runtime-endpoint --image-service-endpoint --runtime-request-timeout --serialize-image-pulls
                    --registry-qps --registry-burst --image-credential-provider-config --image-credential-provider-bin-dir
                    --image-archives --strict-image-pull-policy --image-gc-high-threshold --image-gc-low-threshold --eviction-hard --eviction-soft
                    --eviction-soft-grace-period --evict-static-pods --hostname-override --node-ip --register-node --register-with-taints
                    --node-status-max-images --cloud-provider --cluster-dns --cluster-domain
                    --leave-kernel-parameters --resolv-conf --kubeconfig --bootstrap-kubeconfig --rotate-certificates --cert-dir --enable-server
                    --address --port --tls-cert-file --tls-private-key-file --rotate-server-certificates --client-ca-file
                    --anonymous-auth --authorization-mode --enable-debugging-handlers --read-only-port --cgroup-driver --cgroups-per-qos --cpu-cfs-quota --fail-swap-on --config --coracle-config --config-dir
                    --root-dir --local-socket --healthz-port --healthz-bind-address --page-port --page-address --lock-file --watchdog-device --offline-key-file --offline-plain-secrets -v --v
                    -h --help --version'
                [[ -n $command || $current == -* ]] || words='pods describe logs exec attach port-forward events images status top apply delete restart rollback hold confirm sync validate join leave completion version help'
                ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o filenames -F _coracle coracle
