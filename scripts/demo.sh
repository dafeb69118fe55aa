#!/usr/bin/env bash
# Two questions to one ring of the Cornell NLR testbed, on this machine. Where is UDP lost, by rate, buffer and interrupts? And what
# does one lost packet in 30,000 do to TCP? Needs what scripts/deps.sh installs; takes well under two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

longhaul=${CARGO_TARGET_DIR:-target}/release/longhaul
lab=demo-$$
seconds=6
results=${DEMO_RESULTS:-target/demo}
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
        "  received \(.end.sum_received.bits_per_second | gbps) Gb/s over \($seconds) s, " +
        "retransmitted \(.end.sum_sent.retransmits) packets (\(.end.sender_tcp_congestion))"' <<<"$result"
}

say "Where is UDP lost? Figure 5 of the NLR Rings paper: rate, socket buffer, interrupts; and a ring and a hop that are too slow"
run lab run nlr-udp-loss -o "$results" "${realtime[@]}"

say "One TCP flow over the same ring: 74.6 ms, 10 Gb/s, drop-tail queue"
run lab up nlr-small --name "$lab" "${realtime[@]}"
on server -- iperf3 -s -D
until on server -- ss -Hltn 'sport = :5201' | grep -q .; do sleep 0.05; done
flow
run lab set --name "$lab" 'forward.loss=every(30000)'
flow

say "The report with its figure, for any browser: $results/report.html"
