#!/bin/sh
# Checks the BUILD files with buildifier (`--fix` rewrites them), which npm brings. It is kept beside the virtual
# environment's own tools, so that a second call installs nothing.
set -eu
cd "$(dirname "$0")/.."
version=8.2.1
home="${VENV:-.venv}/buildifier-$version"
tool="$home/node_modules/.bin/buildifier"
if [ ! -e "$tool" ]; then
    if ! command -v npm > /dev/null; then
        echo "buildifier: SKIPPED, because npm is not installed (tests/project/build_test.py still checks the targets)"
        exit 0
    fi
    if ! npm install --silent --no-audit --no-fund --prefix "$home" "@bazel/buildifier@$version" > /dev/null; then
        echo "buildifier: SKIPPED, because npm could not bring @bazel/buildifier@$version" \
            "(tests/project/build_test.py still checks the targets)"
        exit 0
    fi
fi
files=$(git ls-files --cached --others --exclude-standard -- 'BUILD' '*/BUILD' 'MODULE.bazel')
if [ "${1:-}" = "--fix" ]; then
    # shellcheck disable=SC2086
    exec "$tool" -mode=fix -lint=fix $files
fi
# shellcheck disable=SC2086
"$tool" -mode=check -lint=warn $files
echo "buildifier: $(echo "$files" | wc -l) BUILD files are in order"
