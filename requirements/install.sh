#!/bin/sh
# Makes the virtual environment $1 hold what the lock file $2 names, with uv if it can be had (seconds),
# with pip otherwise (minutes). The environment also gets this checkout's folder on its path, so that
# `python examples/train.py` finds the library as `python -m examples.train` does.
set -eu
venv=$1
lock=$2
python=${PYTHON:-python3}
case $lock in
    *keras2*) oldest=9 newest=11 which="Keras 2 (TensorFlow 2.15)" ;;
    *flower*) oldest=11 newest=13 which="Flower" ;;
    *docs*) oldest=10 newest=13 which="The documentation" ;;
    *) oldest=10 newest=13 which="Keras 3" ;;
esac
"$python" -c "import sys; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))" || {
    echo "$which needs Python 3.$oldest to 3.$newest, and $python is $("$python" --version 2>&1 || echo missing): name another one by PYTHON=..." >&2
    exit 1
}
"$python" -m venv "$venv"
bin="$venv/bin"
root=$(cd "$(dirname "$0")/.." && pwd)
echo "$root" > "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/adaclip_tf_checkout.pth"
"$bin/python" -m pip install --quiet --disable-pip-version-check 'uv==0.13.7' || echo "uv is not available; using pip" >&2
# Compiled once here, as pip does: where Python may not write bytecode, each program would compile TensorFlow anew (6 s).
if [ -x "$bin/uv" ] && VIRTUAL_ENV="$venv" "$bin/uv" pip install --quiet --compile-bytecode --require-hashes --python "$bin/python" -r "$lock"; then
    exit 0
fi
"$bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
