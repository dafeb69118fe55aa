#!/usr/bin/env bash
# package.sh BINARY [FOLDER]: makes FOLDER/longhaul_VERSION_ARCHITECTURE.deb (FOLDER: target/package) of a binary that was built,
# and FOLDER/longhaul_VERSION_ARCHITECTURE.debug, its debug info for gdb and perf. Says the package's name.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "$1")
folder=${2:-${CARGO_TARGET_DIR:-target}/package}
mkdir -p "$folder"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

make --no-print-directory -s install BINARY="$binary" DESTDIR="$root" PREFIX=/usr ZSH=/usr/share/zsh/vendor-completions
gzip -9n "$root"/usr/share/man/man1/*.1
documents=$root/usr/share/doc/longhaul
install -d "$documents" "$root/DEBIAN"
install -m 644 README.md LICENSE-APACHE LICENSE-MIT "$documents"
{
    echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
    printf '\nFiles: *\nCopyright: the authors of longhaul\nLicense: Apache-2.0 or Expat\n'
    printf ' The texts are /usr/share/doc/longhaul/LICENSE-APACHE and LICENSE-MIT.\n'
    printf '\nFiles: crates/linux/bpf/*.c\nCopyright: the authors of longhaul\nLicense: GPL-2.0 or BSD-2-Clause\n'
    printf ' On Debian the GPL is /usr/share/common-licenses/GPL-2.\n'
    if [[ -s web/dist/NOTICE ]]; then
        install -m 644 web/dist/NOTICE "$documents/NOTICE-charts"
        printf '\nFiles: web/dist/*\nCopyright: the Apache Software Foundation, and those whom NOTICE-charts names\n'
        printf 'License: Apache-2.0 and BSD-3-Clause\n The texts are LICENSE-APACHE and NOTICE-charts in /usr/share/doc/longhaul.\n'
    fi
} >"$documents/copyright"

version=$("$binary" -V | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
# The libraries that it is linked to, and of the C library the version whose functions it calls.
libc=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
cat >"$root/DEBIAN/control" <<CONTROL
Package: longhaul
Version: $version
Architecture: $architecture
Maintainer: the authors of longhaul <longhaul@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, libelf1 | libelf1t64, zlib1g
Suggests: iperf3, ethtool
Description: $("$binary" --help | head -1)
 Measures UDP and TCP between hosts and says where each lost packet was lost
 and what limits each flow; records packet headers, keeps foreign traffic away
 from the stack, and emulates long paths on one machine.
CONTROL
# No service is started by itself: each needs a key or a mesh first.
cat >"$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now longhaul-serve.service longhaul-log.service || true
    for unit in longhaul-mesh.service longhaul-mesh-coordinator.service; do
        [ ! -e /usr/lib/systemd/system/$unit ] || systemctl disable --now $unit || true
    done
fi
PRERM
for script in postinst postrm; do
    printf '#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n' >"$root/DEBIAN/$script"
done
chmod 755 "$root"/DEBIAN/{postinst,prerm,postrm}

package=$folder/longhaul_${version}_$architecture
objcopy --only-keep-debug --compress-debug-sections "$binary" "$package.debug"
dpkg-deb --root-owner-group ${PACKAGE_COMPRESSION:+"-Z$PACKAGE_COMPRESSION"} --build "$root" "$package.deb" >/dev/null
size=$(stat -c %s "$root/usr/bin/longhaul")
# What is built for tests is larger.
if "$binary" --version | grep -q '^debug assertions: off' && ((size > 16000000)); then
    echo "package: the binary takes $size bytes, more than 16 MB" >&2
    exit 1
fi
echo "$package.deb: the binary takes $(stat -c %s "$root/usr/bin/longhaul") bytes, the package $(stat -c %s "$package.deb")"
