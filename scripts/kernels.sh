#!/usr/bin/env bash
# Fetches Debian's kernels 6.1 (that for clouds) and 6.12 (with the drivers of NICs), with their modules, into target/kernels for the tests that
# boot them; with 6.1 the headers to build a module with. apt checks them by Debian's signatures, in folders of its own: the system's sources and
# packages stay as they are. Silent where they are there.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
kernels=${CARGO_TARGET_DIR:-$root/target}/kernels
keys=/usr/share/keyrings/debian-archive-keyring.gpg

# is_there VERSION FLAVOUR [headers]: by a name such as vmlinuz-6.1.0-50-cloud-amd64.
is_there() {
    ls "$kernels/$1/boot" 2>/dev/null | grep -qE "^vmlinuz-[^-]+(-[0-9]+)?-$2\$" &&
        { [[ $# -lt 3 ]] || [[ -e $kernels/$1/headers ]]; }
}

# fetch VERSION SUITE FLAVOUR [headers]: what Debian's package linux-image-FLAVOUR stands for, and its headers, by the link `headers`.
fetch() {
    local folder=$kernels/$1 suite=$2 flavour=$3 headers=${4-} work package
    ! is_there "$1" "$flavour" $headers || return 0
    mkdir -p "$kernels"
    work=$(mktemp -d "$kernels/.$1-XXXXXX")
    mkdir -p "$work"/{lists,archives}/partial "$work/state"
    touch "$work/status"
    echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian $suite main" >"$work/sources.list"
    cat >"$work/apt.conf" <<CONF
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$work/state";
Dir::State::Lists "$work/lists";
Dir::State::Status "$work/status";
Dir::Cache "$work";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
# Else it leaves root, and may not write here.
APT::Sandbox::User "root";
CONF
    echo "kernels: fetching Debian's Linux $1"
    # Not by `set -e`, which means nothing in what `||` follows.
    (
        cd "$work" && export APT_CONFIG=$work/apt.conf && apt-get -qq update &&
            package=$(apt-cache depends "linux-image-$flavour" | sed -n 's/.*Depends: //p') &&
            apt-get -qq download "$package" && mkdir files && dpkg-deb -x linux-image-*.deb files &&
            { [[ -z $headers ]] || unpack_headers "${package#linux-image-}"; }
    ) || { rm -rf "$work"; return 1; }
    # Whole or not at all; another that did the same may have been first. One of another flavour makes room.
    is_there "$1" "$flavour" $headers || rm -rf "$folder"
    mv -T "$work/files" "$folder" 2>/dev/null || true
    rm -rf "$work"
}

# unpack_headers RELEASE: into files, so that they can be anywhere.
unpack_headers() {
    local own=linux-headers-$1 packages package
    packages=$(apt-cache depends "$own" | sed -nE 's/.*Depends: (linux-(headers|kbuild)-.*)/\1/p')
    apt-get -qq download "$own" $packages || return 1
    for package in "$own" $packages; do dpkg-deb -x "$package"_*.deb files || return 1; done
    # The package's own says where the system would have it.
    sed -i 's|^include /usr/src/|include ../|' "files/usr/src/$own/Makefile" && ln -s "usr/src/$own" files/headers
}

if ! command -v apt-get >/dev/null || [[ ! -e $keys ]]; then
    echo "kernels: without apt-get and Debian's keys ($keys) there are none: tests that boot them are left out" >&2
    exit 0
fi
fetch 6.1 bookworm cloud-amd64 headers && fetch 6.12 trixie amd64 || echo "kernels: could not fetch them: tests that boot them are left out" >&2
