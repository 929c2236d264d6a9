# shellcheck shell=sh
# The steps of the documents for a board, on this machine.

# board_steps HEADING FILE: the commands of the first block after a line that begins with this.
board_steps() {
    awk -v heading="$1" 'index($0, heading) == 1 { found = 1 } found && /^```/ { if (inside) exit; inside = 1; next } inside' "$2"
}

# run_board_steps HEADING: runs the steps of README.md, which are those of docs/install.md, and checks the page of their
# pod. This machine is the board. There is no registry: the image is one that the machine has.
run_board_steps() {
    steps=$(board_steps "$1" README.md)
    expect_equal "the block of docs/install.md" "$(board_steps "## ${1%,*}" docs/install.md)" "$steps"
    ctr --namespace k8s.io images tag localhost/coracle/busybox:1 "$(sed -n 's/^ *image: *//p' examples/host-network.yaml)" >/dev/null
    mkdir dist
    cp coracle dist/coracle-VERSION-aarch64
    cp coracle dist/coracle-VERSION-armv7
    eval "$steps" >steps.out
    expect_equal "the page" "$(tail -n1 steps.out)" "$(hostname)"
}

# ssh board COMMAND...: as the shell of the board gets it.
ssh() { shift; sh -c "$*"; }
scp() { cp "$1" "${2#board:}"; }
curl() { wget -q -O - "$(echo "$1" | sed 's,//board:,//127.0.0.1:,')"; }
