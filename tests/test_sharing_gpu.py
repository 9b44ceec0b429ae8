"""Several runs on one GPU: NVIDIA's service is started around them and stopped, and forgotten where it does not start."""

import os
import stat

import pytest
import torch

from teabert.experiments.sharing_gpu import CONTROL, FOLDERS, PART, shared_gpu


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A stand-in for the service's program: writes down how it was called; may refuse to start"""

    def write(answer: int) -> None:
        program = tmp_path / CONTROL
        program.write_text(f'#!/bin/sh\n(echo "$@"; [ "$1" = -d ] || cat) >> {tmp_path}/calls\necho no; exit {answer}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in (*FOLDERS, PART):
        monkeypatch.delenv(name, raising=False)
    return write


def test_the_service_runs_while_the_runs_do(service, tmp_path):
    service(0)
    with shared_gpu(4, 30) as why:
        assert why is None
        assert len({os.environ[name] for name in FOLDERS}) == 1
        assert os.environ[PART] == "30"
    assert (tmp_path / "calls").read_text().split() == ["-d", "quit"]
    assert not any(name in os.environ for name in (*FOLDERS, PART))


def test_a_part_that_somebody_has_set_stays(service, monkeypatch):
    service(0)
    monkeypatch.setenv(PART, "40")
    with shared_gpu(4):
        assert os.environ[PART] == "40"
    with shared_gpu(4, 20):
        assert os.environ[PART] == "20"
    assert os.environ[PART] == "40"


def test_runs_go_in_turns_where_the_service_does_not_start(service, tmp_path):
    service(1)
    with shared_gpu(4) as why:
        assert f"{CONTROL}: no" in why
        assert "takes the 4 runs in turns" in why
        assert not any(name in os.environ for name in FOLDERS)
    assert (tmp_path / "calls").read_text().split() == ["-d"]


def test_one_run_needs_no_service(service, tmp_path):
    service(0)
    with shared_gpu(1) as why:
        assert why is None
    assert not (tmp_path / "calls").exists()
