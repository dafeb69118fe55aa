#!/usr/bin/env bash
# Installs what longhaul's build, tests and demo need and this machine lacks, and mounts the BPF file system. Quick and silent where nothing is missing.
set -euo pipefail

packages=(
    make gcc libc6-dev pkg-config          # to build
    clang llvm libelf-dev zlib1g-dev       # to build BPF programs and what loads them
    iproute2 iputils-ping iperf3 ethtool   # the demo and the tests run these in labs
    tcpdump tshark                         # judges of what the emulator sends
    tcptrace                               # a judge of what analyze tells of TCP
    sockperf                               # a judge of round trips over an idle cable
    qemu-system-x86 busybox-static xz-utils debian-archive-keyring # other kernels, as judges and to be tested on: scripts/kernels.sh
    curl python3 procps util-linux         # a web server and who reads from it, for tests; sysctl, setpriv
    rsync                                  # what an experiment may run in place of a test
    strace sysstat iputils-tracepath       # remedies of a diagnosis, which a test runs
    nftables                               # a place where packets are dropped, for tests
    netsniff-ng hping3 xdp-tools socat     # other generators, another filter and another way to ship a capture, for benchmarks
    jq                                     # the demo reads results with it
    systemd                                # systemd-analyze, a judge of the units; it need not run
    chromium                               # tests look at reports in it
    prometheus                             # a judge of the metrics and alert rules of a mesh; its service is not needed
    nodejs                                 # builds the scripts of pages: scripts/web.sh
)
# Debian has it in a package of its own, others with Node.
command -v npm >/dev/null || packages+=(npm)
# The other store of a mesh's coordinator; tests start servers of their own.
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
# Programs are kept in it. Distributions mount it; a bare machine may not have done so.
if ((EUID == 0)) && [[ -d /sys/fs/bpf ]] && ! mountpoint -q /sys/fs/bpf; then
    mount -t bpf -o mode=700 bpf /sys/fs/bpf || echo "deps: without /sys/fs/bpf nothing can be kept there: some tests are skipped" >&2
fi

# What says that a package is there where there is no dpkg.
commands=(make cc pkg-config clang llvm-strip ip ping iperf3 ethtool tcpdump tshark tcptrace jq chromium curl python3 rsync sysctl setpriv node npm)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    missing=()
    for command in "${commands[@]}"; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    if ((${#missing[@]} > 0)); then
        echo "deps: this system has no apt-get; install with its own tools what has these commands: ${missing[*]}" >&2
        echo "deps: libelf and zlib are needed with their headers" >&2
        exit 1
    fi
    exit 0
fi

# dpkg-query fails where it does not know one of them, and lists the others.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p') || true
missing=()
for package in "${packages[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi

# tshark's package asks a question of its own when it may.
as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
    # Without a terminal sudo must not ask for a password.
    sudo=(sudo)
    [[ -t 0 ]] || sudo+=(-n)
    if ! command -v sudo >/dev/null || ! "${sudo[@]}" true; then
        echo "deps: these packages are missing and it takes root to install them:" >&2
        echo "deps:     apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=("${sudo[@]}" "${as_root[@]}")
fi
echo "deps: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
# PostgreSQL's package makes and starts a server of its own unless it is told not to.
if [[ " ${missing[*]} " == *" postgresql "* && ! -e /etc/postgresql-common/createcluster.conf ]]; then
    "${as_root[@]}" apt-get install -y -qq --no-install-recommends postgresql-common
    "${as_root[@]}" sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
fi
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
