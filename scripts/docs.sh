#!/usr/bin/env bash
# Builds docs/ as a site in target/docs. A broken link or anchor fails it, and so does a page that loads something from another server.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=target/docs-venv
# `make check` goes on without the site where MkDocs cannot be had: DOCS_OPTIONAL.
cannot() {
    echo "docs: ${DOCS_OPTIONAL:+skipped: }$1" >&2
    exit "$((${DOCS_OPTIONAL:-0} ? 0 : 1))"
}
python3 -c 'import venv, ensurepip' 2>/dev/null || cannot "this needs Python 3 with venv (Debian: python3-venv)"
# Installed again when the list changes.
if ! cmp -s docs/requirements.txt "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --requirement docs/requirements.txt ||
        cannot "pip could not install docs/requirements.txt"
    cp docs/requirements.txt "$venv/installed.txt"
fi
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict
if ! grep -q 'id="\?how-to-report' target/docs/security.html; then
    echo "docs: security.html does not show SECURITY.md" >&2
    exit 1
fi

if grep -rnoE '<(link|script|img|iframe)[^>]* (href|src)="?(https?:)?//[^">]*' target/docs --include='*.html' |
    grep -vE 'rel="?(canonical|alternate|edit|next|prev)'; then
    echo "docs: these pages load something from another server" >&2
    exit 1
fi
echo "docs: target/docs/index.html"
