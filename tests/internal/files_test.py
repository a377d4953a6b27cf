"""Files that are whole whenever someone looks."""

import os

import numpy as np
import pytest

from adaclip_tf._internal import files


def test_a_file_is_replaced_once_all_is_on_the_disk(tmp_path, monkeypatch):
    path, done = tmp_path / "file", []
    path.write_bytes(b"old")
    sync, replace = os.fsync, os.replace

    def synced(descriptor):
        assert os.fstat(descriptor).st_size == 3  # nothing waits in this process
        done.append("synced")
        sync(descriptor)

    def replaced(old, new):
        done.append("replaced")
        assert path.read_bytes() == b"old"
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with files.replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert (path.read_bytes(), done, os.listdir(tmp_path)) == (b"new", ["synced", "replaced"], ["file"])


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), files.replacing(path) as file:
        file.write(b"half")
        1 / 0  # noqa: B018
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


def test_others_may_read_what_the_user_s_mask_lets_them(tmp_path):
    before = os.umask(0o027)
    try:
        with files.replacing(tmp_path / "new" / "file") as file:
            file.write(b"x")
        assert os.umask(0o027) == 0o027  # is as it was
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o640


def test_arrays_are_read_without_pickle(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, plain=np.ones(3), objects=np.array([{}], object))
    with files.saved_arrays(path, "Somebody") as stored:
        np.testing.assert_array_equal(stored["plain"], np.ones(3))
    with (
        pytest.raises(ValueError, match=r"not a file that Somebody\.save wrote"),
        files.saved_arrays(path, "Somebody") as s,
    ):
        s["objects"]
    with pytest.raises(OSError, match="No such file"), files.saved_arrays(tmp_path / "nowhere", "Somebody"):
        pass


def test_what_cannot_be_written_is_told_before(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    files.check_writable("path", path)
    files.check_writable("path", tmp_path / "new" / "file")
    assert path.read_bytes() == b"old" and sorted(os.listdir(tmp_path)) == ["file", "new"]
    for wrong in (tmp_path, path / "below"):
        with pytest.raises(ValueError, match=r"`path`=.* cannot be written"):
            files.check_writable("path", wrong)
