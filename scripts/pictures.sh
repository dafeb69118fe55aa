#!/usr/bin/env bash
# Takes the pictures of README from the pages that `make demo` wrote, as Chromium lays them out.
set -euo pipefail
cd "$(dirname "$0")/.."

results=${DEMO_RESULTS:-target/demo}
for page in report tcp/report; do
    [[ -f $results/$page.html ]] || { echo "there is no $results/$page.html: run make demo" >&2; exit 1; }
done
picture() { # page, height, file
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="1280,$2" \
        --screenshot="$PWD/docs/images/$3" "file://$(realpath "$results")/$1" 2>/dev/null
    echo "docs/images/$3"
}
# So high that both rows of figures are in it; of TCP the bars, and goodput and window over time.
picture report.html 1640 report.png
picture tcp/report.html 1640 tcp.png
