"""Each test of 01 begins in an empty folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
