#compdef coracle
# zsh completion of coracle(8). tests/manual.rs holds it against the program's own help.

# The pods of this node, where it tells.
_coracle_pods() {
    local -a pods
    pods=(${${(f)"$(coracle pods 2>/dev/null)"}[2,-1]})
    pods=(${${pods#* ##}%% *})
    compadd $pods
}

_coracle() {
    local -a socket
    socket=('--local-socket[where coracle listens]:socket:_files')
    if (( CURRENT > 2 )); then
        case $words[2] in
            apply)
                _arguments '2:: :' '*'{-f,--filename}'[a manifest, or - for the standard input]:manifest:_files' $socket '(-h --help)'{-h,--help}
                return ;;
            delete)
                _arguments '2::pod:_coracle_pods' '--wait[until nothing of it is left]' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            restart)
                _arguments '2::pod:_coracle_pods' '(-c --container)'{-c,--container}'[the container]:container:' '--wait[until they run again]' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            sync)
                _arguments '2:: :' '--wait[until it is done]' $socket '(-h --help)'{-h,--help}
                return ;;
            attach|exec)
                _arguments '2::pod:_coracle_pods' '(-i --stdin)'{-i,--stdin}'[pass the input on]' '(-t --tty)'{-t,--tty}'[on a terminal]' \
                    '(-c --container)'{-c,--container}'[the container]:container:' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            completion)
                _arguments '2:shell:(bash zsh fish)' '(-h --help)'{-h,--help}
                return ;;
            images)
                _arguments '2:: :(import remove)' '(-o --output)'{-o,--output}'[how they are shown]:output:(wide json)' $socket '(-h --help)'{-h,--help} '*:image:_files'
                return ;;
            port-forward)
                _arguments '2::pod:_coracle_pods' '--address[where to listen]:address:' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help} '*:port:'
                return ;;
            rollback)
                _arguments '2::pod:_coracle_pods' '--to[so many versions back]:number:' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            describe|hold|confirm)
                _arguments '2::pod:_coracle_pods' '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            logs)
                _arguments '2::pod:_coracle_pods' '(-c --container)'{-c,--container}'[the container]:container:' \
                    '(-f --follow)'{-f,--follow}'[go on with what comes]' '(-p --previous)'{-p,--previous}'[of the run before]' \
                    '--tail[only so many of the last lines]:lines:' '--since[only what is younger]:duration:' \
                    '--timestamps[with the moment before each line]' '--limit-bytes[no more than this]:bytes:' \
                    '(-n --namespace)'{-n,--namespace}'[of the pod]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            events)
                _arguments '2::pod:_coracle_pods' '(-o --output)'{-o,--output}'[how they are shown]:output:(json yaml)' \
                    '(-n --namespace)'{-n,--namespace}'[only what is in this one]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            pods)
                _arguments '2:: :' '(-o --output)'{-o,--output}'[how they are shown]:output:(wide json yaml)' \
                    '(-n --namespace)'{-n,--namespace}'[only the pods of this one]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            status)
                _arguments '2:: :' '(-o --output)'{-o,--output}'[how it is shown]:output:(json yaml)' $socket '(-h --help)'{-h,--help}
                return ;;
            top)
                _arguments '2:: :' '(-o --output)'{-o,--output}'[how it is shown]:output:(json)' '(-w --watch)'{-w,--watch}'[again and again]' \
                    '(-n --namespace)'{-n,--namespace}'[only the pods of this one]:namespace:' $socket '(-h --help)'{-h,--help}
                return ;;
            validate)
                _arguments '(-h --help)'{-h,--help} '*:manifest:_files'
                return ;;
            join)
                _arguments '2:server:' '--token[good for asking for a certificate]:token:' \
                    '*--discovery-token-ca-cert-hash[digest of the key of the authority]:digest:' \
                    '--discovery-token-unsafe-skip-ca-verification[believe whoever knows the token]' \
                    '--node-name[name of the node]:name:' '--no-start[write everything, and start nothing]' \
                    '--timeout[ask a server that is away for so long]:duration:' \
                    '--kubernetes-dir[kubeconfigs]:directory:_files -/' '--root-dir[state]:directory:_files -/' '(-h --help)'{-h,--help}
                return ;;
            leave)
                _arguments '2:: :' '--delete-node[delete the object of the node, too]' '--no-restart[leave the agent as it runs]' \
                    '--kubernetes-dir[kubeconfigs]:directory:_files -/' '--root-dir[state]:directory:_files -/' '(-h --help)'{-h,--help}
                return ;;
            version)
                _arguments '2:: :' '(-o --output)'{-o,--output}'[how it is shown]:output:(json)' '(-h --help)'{-h,--help}
                return ;;
            help)
                _values command apply attach completion confirm delete describe events exec hold images join leave logs pods port-forward restart rollback status sync top validate version
                return ;;
        esac
    fi
    local -a commands flags
    commands=(
        'apply:have this node keep and run pods'
        'delete:end one of those'
        'attach:what a container writes from now on; type into it'
        'describe:everything about one pod'
        'exec:run a command in a container'
        'completion:a script with which a shell completes all of this'
        'rollback:have an earlier version of a pod run again'
        'hold:keep the version of a pod'
        'confirm:run what the manifest of a pod says'
        'images:the images of this node, and who needs them'
        'port-forward:ports of a pod on this machine'
        'join:make this machine a node of a cluster'
        'leave:take this machine out of its cluster'
        'logs:what a container has written'
        'events:what has happened of late'
        'help:what --help says'
        'pods:the pods of this node'
        'restart:have containers begin anew'
        'status:the node, its runtime, its manifests, and what went wrong last'
        'sync:exchange everything with the cluster now'
        'top:what the node and its pods use'
        'validate:check manifests before they are put in place'
        'version:the version'
    )
    flags=(
        '--pod-manifest-path[manifests, a directory or a file]:path:_files'
        '--file-check-frequency[look at the manifests again after this]:duration:'
        '--manifest-url[a manifest to be asked for]:url:'
        '--manifest-url-header[headers of these questions]:name\:value:'
        '--manifest-url-ca-file[whose certificates are believed there]:file:_files'
        '--manifest-public-key[whose signature a manifest must have]:file:_files'
        '--http-check-frequency[between two questions]:duration:'
        '--max-pods[how many pods this node runs]:number:'
        '--node-labels[labels of the node]:key=value:'
        '--register-node=-[make the object of the node]::bool:(true false)'
        '--register-with-taints[taints of a new node]:key=value\:effect:'
        '--node-status-max-images[images in the status of the node]:number:'
        '--cloud-provider[a controller of the cloud knows the addresses]:provider:(external)'
        '--pod-max-pids[processes of one pod]:number:'
        '--seccomp-default[RuntimeDefault where a pod says nothing]'
        '--container-runtime-endpoint[the runtime]:socket:_files'
        '--image-service-endpoint[where images are pulled]:socket:_files'
        '--runtime-request-timeout[how long the runtime may take]:duration:'
        '--serialize-image-pulls=-[one image at a time]::bool:(true false)'
        '--registry-qps[pulls per second]:number:'
        '--registry-burst[pulls at once]:number:'
        '--image-credential-provider-config[programs that give credentials]:path:_files'
        '--image-credential-provider-bin-dir[where these programs are]:directory:_files -/'
        '--image-archives[archives whose images the runtime is to have]:directory:_files -/'
        '--strict-image-pull-policy[no image without its registry]'
        '--image-gc-high-threshold[percent of the disk from which images are removed]:number:'
        '--image-gc-low-threshold[percent of the disk down to which images are removed]:number:'
        '--eviction-hard[amounts below which pods go]:amounts:'
        '--eviction-soft[amounts below which pods go after a while]:amounts:'
        '--eviction-soft-grace-period[how long that while is]:durations:'
        '--evict-static-pods[static pods go, too]'
        '--hostname-override[name of the node]:name:'
        '--node-ip[addresses of the node]:address:'
        '--cluster-dns[resolvers of the cluster]:address:'
        '--cluster-domain[domain of the cluster]:name:'
        '--leave-kernel-parameters[do not set parameters of the kernel]'
        '--resolv-conf[resolver settings that pods inherit]:path:_files'
        '--kubeconfig[credentials of the node]:file:_files'
        '--bootstrap-kubeconfig[credentials to ask for its own ones with]:file:_files'
        '--rotate-certificates[replace the certificate before it expires]'
        '--cert-dir[certificates and keys]:directory:_files -/'
        '--enable-server=-[answer the API of a kubelet]::bool:(true false)'
        '--address[where it is answered]:address:'
        '--port[where it is answered]:port:'
        '--tls-cert-file[certificate of the server]:file:_files'
        '--tls-private-key-file[key of the server]:file:_files'
        '--rotate-server-certificates[ask the cluster for the certificate of the server]'
        '--client-ca-file[whose certificates are believed of clients]:file:_files'
        '--anonymous-auth=-[let in who shows nothing]::bool:(true false)'
        '--authorization-mode[who may ask]:mode:(Webhook AlwaysAllow)'
        '--enable-debugging-handlers=-[logs, exec, attach and port-forward]::bool:(true false)'
        '--read-only-port[figures and pods for whoever asks, without TLS]:port:'
        '--cgroup-driver[who makes control groups]:driver:(cgroupfs systemd)'
        '--cgroups-per-qos=-[control groups for the classes of pods]::bool:(true false)'
        '--cpu-cfs-quota=-[keep containers to their CPU limits]::bool:(true false)'
        '--fail-swap-on=-[do not start where swap is on]::bool:(true false)'
        '--config[a KubeletConfiguration]:file:_files'
        '--coracle-config[what a KubeletConfiguration has no fields for]:file:_files'
        '--config-dir[files laid over it]:directory:_files -/'
        '--root-dir[state]:directory:_files -/'
        $socket
        '--healthz-port[where /healthz is answered]:port:'
        '--healthz-bind-address[where /healthz is answered]:address:'
        '--page-port[where the page is shown]:port:'
        '--page-address[where the page is shown]:address:'
        '--lock-file[held while this process runs]:file:_files'
        '--offline-key-file[seals Secrets and tokens for a start without the cluster]:file:_files'
        '--offline-plain-secrets=-[store them in plain where there is no key]::bool:(true false)'
        '--watchdog-device[pet this one while the sync loop moves]:device:_files'
        '(-v --v)'{-v,--v}'[verbosity]:number:'
        '(-h --help)'{-h,--help}'[what there is]'
        '--version[the version]'
    )
    if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then
        _describe command commands
    else
        _arguments $flags
    fi
}

# Found by its name it is the completion itself; read with `source` it says whose it is.
if [[ $funcstack[1] == _coracle ]]; then _coracle "$@"; else compdef _coracle coracle; fi
