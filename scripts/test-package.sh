#!/usr/bin/env bash
# test-package.sh BINARY: makes a package of the binary, installs it, uses it and removes it. Leaves the machine as it was.
set -euo pipefail
cd "$(dirname "$0")/.."

# What could not be tested, here and at the end of `make test`.
skipped() {
    echo "test-package: skipped: $*"
    [[ -z ${LONGHAUL_SKIPPED:-} ]] || echo "test-package: $*" >>"$LONGHAUL_SKIPPED"
}
skip() {
    skipped "$@"
    exit 0
}
fail() {
    echo "test-package: $*" >&2
    exit 1
}
((EUID == 0)) || skip "installing a package takes root"
for command in dpkg dpkg-deb objdump objcopy; do
    command -v "$command" >/dev/null || skip "there is no $command"
done
if [[ $(dpkg-query -W -f='${db:Status-Status}' longhaul 2>/dev/null) == installed ]]; then
    skip "longhaul is installed here; remove it to run this (dpkg -r longhaul)"
fi
[[ ! -e /usr/bin/longhaul ]] || skip "there is a /usr/bin/longhaul of no package"

mesh=
[[ ! -x $1-mesh ]] || mesh="mesh mesh-coordinator"
folder=$(mktemp -d)
installed=
cleanup() {
    [[ -z $installed ]] || dpkg --purge longhaul >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# gzip: a small package takes half a minute to make.
PACKAGE_COMPRESSION=gzip scripts/package.sh "$1" "$folder"
package=$(echo "$folder"/longhaul_*.deb)
mapfile -t files < <(dpkg-deb -c "$package" | awk '$1 !~ /^d/ { print substr($6, 2) }')
((${#files[@]} > 20)) || fail "the package has ${#files[@]} files alone"
installed=yes
dpkg -i "$package" >"$folder/log" 2>&1 || fail "dpkg -i: $(cat "$folder/log")"

# What was installed is used, by its name and far from the repository.
commit=${LONGHAUL_COMMIT:-$(git rev-parse --short=10 HEAD 2>/dev/null || true)}
cd /
said=$(longhaul --version)
[[ $said == "longhaul "*"BPF programs: "* ]] || fail "longhaul --version says: $said"
# A development build does not ask for its commit.
if [[ -n $commit && $said == *"debug assertions: off"* ]]; then
    [[ $said == *"($commit)"* ]] || fail "longhaul --version lacks the commit $commit: $said"
fi
longhaul paths show nlr-small >/dev/null
# The program behind `longhaul mesh` is in the package if it was built.
if [[ -n $mesh ]]; then
    [[ $(longhaul mesh init --help) == *"--folder <FOLDER>"* ]] || fail "longhaul mesh does not start longhaul-mesh"
else
    skipped "longhaul-mesh was not built"
fi
readelf -S --wide /usr/bin/longhaul | grep -q '\.debug_info' && fail "the binary has its debug info with it"
if longhaul lab up lan --name "package-$$" >/dev/null; then
    trap 'longhaul lab down --name "package-$$" >/dev/null || true; cleanup' EXIT
    longhaul lab exec --name "package-$$" client -- ping -c 1 server >/dev/null || fail "no ping over a lab's path"
    longhaul lab down --name "package-$$" >/dev/null
    trap cleanup EXIT
fi
for command in "" -udp -lab-up -serve -log; do
    page=/usr/share/man/man1/longhaul$command.1.gz
    if [[ -e $page ]]; then
        [[ $(zcat "$page") == *".SH SYNOPSIS"* ]] || fail "$page is no man page"
    elif grep -qs 'path-exclude.*/usr/share/man' /etc/dpkg/dpkg.cfg /etc/dpkg/dpkg.cfg.d/*; then
        skipped "dpkg leaves man pages out on this machine"
        break
    else
        fail "there is no $page"
    fi
    ! command -v man >/dev/null || [[ $(man -w "longhaul$command" 2>&1) == "$page" ]] || fail "man does not find longhaul$command"
done
bash -n /usr/share/bash-completion/completions/longhaul || fail "the completions of bash"
if command -v systemd-analyze >/dev/null; then
    for unit in serve log $mesh; do
        file=/usr/lib/systemd/system/longhaul-$unit.service
        wrong=$(systemd-analyze verify "$file" 2>&1) || fail "longhaul-$unit.service: $wrong"
        [[ $wrong != *longhaul-* ]] || fail "longhaul-$unit.service: $wrong"
        # How exposed it is, in tenths of 0 to 10. Those that attach BPF programs have four capabilities for that; the others have none.
        case $unit in serve | mesh) most=30 ;; *) most=20 ;; esac
        if [[ $(systemd-analyze --help) == *--threshold* ]]; then
            exposed=$(systemd-analyze security --no-pager --offline=true --threshold=$most "$file" 2>&1) ||
                fail "longhaul-$unit.service has more rights than it needs: $(tail -n 1 <<<"$exposed")"
        fi
    done
else
    skipped "there is no systemd-analyze to judge the units"
fi

dpkg -r longhaul >"$folder/log" 2>&1 || fail "dpkg -r: $(cat "$folder/log")"
for file in "${files[@]}"; do
    [[ ! -e $file ]] || fail "$file is still there"
done
echo "test-package: installed, used and removed ${#files[@]} files"
