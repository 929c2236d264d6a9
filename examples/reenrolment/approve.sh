#!/bin/sh
# Approves the certificate requests of boards whose client certificate expired while they were away. A request is
# approved if its node exists, is not listed as stolen (stolen-boards.yaml), and has signed it with its re-enrolment key,
# which is an annotation of the Node.
# Needs kubectl, openssl and base64, which busybox and coreutils have. Prints one line for each approved request.
set -eu
requester=${REQUESTER:-system:serviceaccount:kube-system:coracle-reenrolment}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

check() { # the name of a request; succeeds if it may be approved
    # The API server takes almost any name. None may look like a flag of kubectl.
    case $1 in -* | *[!A-Za-z0-9._-]*) return 1 ;; esac
    # One field each time: annotations are the requester's text, and must not be able to look like other fields.
    field() { kubectl get csr "$1" -o "jsonpath={$2}"; }
    [ -z "$(field "$1" '.status.conditions[*].type')" ] || return 1
    [ "$(field "$1" .spec.username)" = "$requester" ] || return 1
    [ "$(field "$1" .spec.signerName)" = kubernetes.io/kube-apiserver-client-kubelet ] || return 1
    [ "$(field "$1" '.spec.usages[*]')" = "digital signature client auth" ] || return 1
    field "$1" .spec.request | base64 -d >request.pem
    field "$1" '.metadata.annotations.coracle\.dev/reenrolment-signature' | base64 -d >signature || return 1
    # The request is for one node, and whoever made it has its key. openssl 3.0 ends with 0 in either case.
    case $(openssl req -in request.pem -noout -verify 2>&1) in *'verify OK'*) ;; *) return 1 ;; esac
    subject=$(openssl req -in request.pem -noout -subject -nameopt RFC2253) || return 1
    node=${subject#subject=CN=system:node:}
    node=${node%,O=system:nodes}
    [ "$subject" = "subject=CN=system:node:$node,O=system:nodes" ] || return 1
    case $node in '' | *[!a-z0-9.-]*) return 1 ;; esac
    case $stolen in *"\"$node\":"*) return 1 ;; esac
    # The board that joined as this node has signed it. A deleted node has no key.
    kubectl get node "$node" -o 'jsonpath={.metadata.annotations.coracle\.dev/reenrolment-key}' 2>/dev/null |
        base64 -d >key.der || return 1
    openssl pkey -pubin -inform DER -in key.der -out key.pem 2>/dev/null || return 1
    openssl dgst -sha256 -verify key.pem -signature signature request.pem >verified 2>&1
}

# Assignments, so that the script fails if the API server does not answer.
stolen=$(kubectl -n kube-system get configmap coracle-stolen-boards --ignore-not-found -o 'jsonpath={.data}')
# Those of other users need no closer look.
requests=$(kubectl get csr -o "jsonpath={.items[?(@.spec.username==\"$requester\")].metadata.name}")
set -f # A name may be a pattern of files.
for csr in $requests; do
    if check "$csr"; then
        kubectl certificate approve "$csr" >/dev/null
        echo "approved $csr for node $node"
    fi
done
