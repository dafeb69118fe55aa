#!/usr/bin/env bash
# One ring of the Cornell NLR testbed on this machine: how long is it, how fast is TCP over it, and what does one lost
# packet in 30,000 do to that? Needs what scripts/deps.sh installs; takes well under a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

longhaul=${CARGO_TARGET_DIR:-target}/release/longhaul
lab=demo-$$
seconds=12
nominal_ms=74.6
# As root the emulator may go before everything else, so that a busy machine does not blur what is seen.
realtime=()
if ((EUID == 0)); then realtime=(--realtime 50); fi

# Whatever ends this script ends the lab, and the lab ends what runs in it.
trap '"$longhaul" lab down --name "$lab" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
    if [[ -t 1 ]]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}
run() { printf '$ longhaul %s\n' "$*"; "$longhaul" "$@"; }
on() { "$longhaul" lab exec --name "$lab" "$@"; }

# One TCP flow of iperf3 with CUBIC, the control of most hosts; prints what it came to.
flow() {
    local result
    result=$(on client -- iperf3 -c server -C cubic -t "$seconds" -J)
    jq -r --argjson seconds "$seconds" '
        def gbps: . / 1e7 | round / 100;
        def mean: if length > 0 then add / length else 0 end;
        "  received            \(.end.sum_received.bits_per_second | gbps) Gb/s over \($seconds) s",
        "  in the last 5 s     \([.intervals[-5:][].sum.bits_per_second] | mean | gbps) Gb/s",
        "  retransmitted       \(.end.sum_sent.retransmits) packets",
        "  congestion control  \(.end.sender_tcp_congestion)"' <<<"$result"
}

say "The small NLR ring: 37.3 ms one way, 10 Gb/s, drop-tail queue"
run lab up nlr-small --name "$lab" "${realtime[@]}"

say "Its round trip, nominally $nominal_ms ms"
ping=$(on client -- ping -q -c 10 -i 0.2 server)
awk -F'[ /]' -v nominal="$nominal_ms" '/^rtt/ {
    printf "  least %s ms, mean %s ms, most %s ms: least %+.3f ms beside nominal\n", $7, $8, $9, $7 - nominal }' <<<"$ping"

on server -- iperf3 -s -D
until on server -- ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.05; done

say "One TCP flow over it"
flow

say "The same with every 30,000th packet lost on the way there, as DataTAG had it"
run lab set --name "$lab" 'forward.loss=every(30000)'
flow

say "What the emulator saw: how late it was, and what was lost at which hop"
run lab status --name "$lab"
