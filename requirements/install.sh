#!/bin/sh
# Makes the virtual environment $1 hold what the lock file $2 names, with uv if it can be had (seconds),
# with pip otherwise (minutes). The environment also gets this checkout's folder on its path, so that
# `python examples/train.py` finds the library as `python -m examples.train` does.
set -eu
venv=$1
lock=$2
"${PYTHON:-python3.11}" -m venv "$venv"
bin="$venv/bin"
root=$(cd "$(dirname "$0")/.." && pwd)
echo "$root" > "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/adaclip_tf_checkout.pth"
"$bin/python" -m pip install --quiet --disable-pip-version-check 'uv==0.13.7' || echo "uv is not available; using pip" >&2
if [ -x "$bin/uv" ] && VIRTUAL_ENV="$venv" "$bin/uv" pip install --quiet --require-hashes --python "$bin/python" -r "$lock"; then
    exit 0
fi
"$bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
