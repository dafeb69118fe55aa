#!/usr/bin/env bash
# Two questions to one ring of the Cornell NLR testbed, on this machine. Where is UDP lost, by rate, buffer and interrupts? And what
# does one lost packet in 5,000 do to TCP? Needs what scripts/deps.sh installs; takes some three minutes, after
# `make demo` has built the program.
set -euo pipefail
cd "$(dirname "$0")/.."

longhaul=${CARGO_TARGET_DIR:-target}/debug/longhaul
results=${DEMO_RESULTS:-target/demo}

trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() {
    if [[ -t 1 ]]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi
}
run() { printf '$ longhaul %s\n' "$*"; "$longhaul" "$@"; }

say "Where is UDP lost? Figure 5 of the NLR Rings paper: rate, socket buffer, interrupts; and a ring and a hop that are too slow"
run lab run nlr-udp-loss --quick --force -o "$results"

say "And what does a lost packet do to TCP? DataTAG's question, by congestion control, with one packet lost in 5,000"
run lab run experiments/demo-tcp.toml --quick --force -o "$results/tcp"

say "The reports with their figures, for any browser: $results/report.html, $results/tcp/report.html"
