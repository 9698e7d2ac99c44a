#!/bin/sh
# AppWorld in an environment of its own: it needs an old pydantic, which the toolkit does not take.
# Its tasks are a download: APPWORLD_ROOT=DIR $there/bin/appworld download data
set -eu
there="${1:-$HOME/.cache/agentcore-rl-toolkit/appworld}"
python3 -m venv "$there"
"$there/bin/pip" install --quiet appworld
echo "$there/bin/python"
