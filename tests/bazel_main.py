"""Runs pytest on the files named on the command line: the `main` of every py_test in the BUILD files."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
