#!/bin/sh
# Packs the two releases of the library that projects/text_report depends on.
set -e
cd "$(dirname "$0")"
for name in textkit-1.0:8 textkit-2.0:17; do
  classes=$(mktemp -d)
  javac --release "${name#*:}" -g:none -d "$classes" "${name%:*}"/textkit/*.java
  jar --create --no-manifest --date=2024-01-01T00:00:00Z \
    --file ../projects/text_report/repository/"${name%:*}".jar -C "$classes" .
  rm -r "$classes"
done
