#!/usr/bin/env bash
# Says which Chromium the page is tried in. Where there is none, CI=true and this
# is a Debian machine on which one may be installed, it installs one. The exit code
# is always 0: without a browser the test itself says that it was skipped, and why.
set -u

for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable chrome-headless-shell headless-shell; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then
    echo "browser: $(command -v "$name")"
    exit 0
  fi
done
if [ "${CI:-}" != true ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "browser: no Chromium on this machine; on Debian: apt-get install chromium fonts-dejavu-core"
  exit 0
fi
log=$(mktemp)
echo "browser: installing Chromium"
if apt-get update >"$log" 2>&1 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core >>"$log" 2>&1; then
  echo "browser: installed $(command -v chromium)"
else
  echo "browser: it could not be installed:"
  tail -n 5 "$log"
fi
rm -f "$log"
