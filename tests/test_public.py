import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants

import hubserver
from teabert import fetching
from teabert.config import parse_recipe
from teabert.errors import UserError
from teabert.fetching import Fetched, get_data
from teabert.tasks import TASKS, Task
from teabert.tasks.public import ALIASES, PUBLIC
from teabert.tasks.reading import read_split

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """An empty cache, no data folder, no hub and nothing from this machine's own settings"""
    for name in [name for name in os.environ if name.startswith("HF_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("TEABERT_DATA", raising=False)
    monkeypatch.setenv("TEABERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))  # for processes started here
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "huggingface" / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused at once
    return tmp_path / "cache" / "data"


@pytest.fixture
def server(monkeypatch):
    with hubserver.serve() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        for repo in {public.release.repo for public in PUBLIC.values()}:
            mine = [public for public in PUBLIC.values() if public.release.repo == repo]
            server.put(repo, {file: data for public in mine for file, data in release(public).items()}, "dataset")
        yield server


def parquet(rows):
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def row(task, number, split):
    """A row as the hub holds it: numbers for labels, -1 in GLUE's test rows, both of SICK's labels"""
    texts = {column: f"{column} {number} of {split}" for column in task.texts}
    if task.name.startswith("sick"):
        return texts | {"id": str(number), "label": number % 3, "relatedness_score": 1 + number % 5}
    if task.name == "boolq":
        return texts | {"answer": number % 2 == 0}
    hidden = split == "test" and task.id == "idx"
    label = -1 if hidden else number % (6 if task.kind == "score" else len(task.labels))
    return texts | {"label": float(label) if task.kind == "score" else label, "idx": number}


def release(public):
    """The files of a release, with a few rows that were written for this test"""
    files = {}
    for split, path in public.release.files.items():
        rows = [row(public.task, number, split) for number in range({"train": 7, "dev": 5, "test": 3}[split])]
        files[path] = jsonl(rows) if path.endswith(".jsonl") else parquet(rows)
    return files


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


# Fetching


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_task_is_fetched_and_then_read_without_settings(server, machine, name):
    (fetched,) = get_data([name], progress=False)
    assert fetched.name == name
    assert fetched.rows == {split: {"train": 7, "dev": 5, "test": 3}[split] for split in PUBLIC[name].release.files}
    assert fetched.source == f"hub:{PUBLIC[name].release.repo}@{PUBLIC[name].release.revision}"
    assert fetched.licence in TASKS[name].source
    assert [path.parent for path in fetched.files] == [machine / "public"] * len(fetched.files)
    for split, count in fetched.rows.items():
        examples = read_split(TASKS[name], split, None).examples
        assert len(examples) == count
        hidden = split == "test" and TASKS[name].id == "idx"
        assert all((example.label != example.label) == hidden for example in examples)  # not-a-number: no label


def test_fetched_files_are_the_hubs_own_and_nothing_else_is_left(server, machine):
    get_data(["cola", "sst5"], progress=False)
    names = [f"cola-{split}.parquet" for split in ("dev", "test", "train")]
    names += [f"sst5-{split}.jsonl" for split in ("dev", "test", "train")]
    assert everything(machine) == ["public", *(f"public/{name}" for name in names)]
    theirs = server.repositories["dataset", "SetFit/sst5"]["dev.jsonl"]
    assert (machine / "public" / "sst5-dev.jsonl").read_bytes() == theirs


def test_names_of_the_courses_tasks_fetch_the_public_releases_and_say_so(server):
    fetched = get_data(["sst", "quora", "sts", "stsb"], progress=False)
    assert [each.name for each in fetched] == list(ALIASES.values())
    assert all("cannot be fetched" in each.note for each in fetched)
    assert "never trained together with 'sts'" in fetched[2].note


def test_files_go_where_the_user_says_else_into_the_data_folder(server, machine, tmp_path, monkeypatch):
    (fetched,) = get_data(["boolq"], tmp_path / "elsewhere", progress=False)
    assert [path.name for path in fetched.files] == ["boolq-train.parquet", "boolq-dev.parquet"]
    assert fetched.files[0].parent == tmp_path / "elsewhere" / "public"
    monkeypatch.setenv("TEABERT_DATA", str(tmp_path / "data"))
    get_data(["wnli"], progress=False)
    assert (tmp_path / "data" / "public" / "wnli-dev.parquet").is_file()
    assert everything(machine) == []


def test_what_is_there_is_checked_and_not_fetched_again(server, machine):
    get_data(["sick-entailment"], progress=False)
    server.requests.clear()
    (fetched,) = get_data(["sick-relatedness"], progress=False)  # it reads the same files
    assert server.requests == []
    assert isinstance(fetched, Fetched)
    assert fetched.rows["dev"] == 5


def test_only_the_split_that_is_missing_is_fetched(server, machine):
    get_data(["rte"], progress=False)
    (machine / "public" / "rte-dev.parquet").unlink()
    server.requests.clear()
    get_data(["rte"], progress=False)
    assert {request.split("/resolve/")[1][41:] for request in server.requests if "/resolve/" in request} == {
        "rte/validation-00000-of-00001.parquet"
    }


def test_offline_message_says_what_to_do_and_files_put_there_by_hand_are_taken(machine):
    with pytest.raises(UserError) as error:
        get_data(["cola"], progress=False)
    message = str(error.value)
    by_hand = machine / "public" / "from-hub" / "nyu-mll--glue"
    assert "cola/train-00000-of-00001.parquet" in message
    assert "Try again where the hub is in reach" in message
    assert f"put the files into {by_hand} by hand" in message
    assert message.endswith("Then: teabert data get cola")
    assert everything(machine) in ([], ["public"])
    for file, data in release(PUBLIC["cola"]).items():
        (by_hand / file).parent.mkdir(parents=True, exist_ok=True)
        (by_hand / file).write_bytes(data)
    assert get_data(["cola"], progress=False)[0].rows == {"train": 7, "dev": 5, "test": 3}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"PAR1 but no more", "is not a readable parquet file"),
        (parquet([{"text": "a", "label": 1}]), "has no column 'sentence'. Its columns: 'text', 'label'"),
        (parquet([{"sentence": "a", "label": 2}]), "label '2' is not one of 0, 1"),
        (parquet([{"sentence": "a", "label": -1}]), "label '-1' is not one of 0, 1"),  # only test rows may hide it
    ],
)
def test_a_file_that_is_not_what_the_task_says_is_refused_and_not_kept(server, machine, data, found):
    path = "cola/validation-00000-of-00001.parquet"
    server.repositories["dataset", "nyu-mll/glue"][path] = data
    with pytest.raises(UserError) as error:
        get_data(["cola"], progress=False)
    assert f"Task 'cola': dev is not what hub:nyu-mll/glue {path} should be." in str(error.value)
    assert found in str(error.value)
    assert not any("validation" in name or "public/cola" in name for name in everything(machine))
    server.repositories["dataset", "nyu-mll/glue"] |= release(PUBLIC["cola"])
    assert get_data(["cola"], progress=False)[0].rows["dev"] == 5


def test_a_damaged_file_of_the_users_is_named_and_stays(server, machine):
    get_data(["cola"], progress=False)
    file = machine / "public" / "cola-dev.parquet"
    file.write_bytes(b"damaged")
    with pytest.raises(UserError, match="Remove the file"):
        get_data(["cola"], progress=False)
    assert file.read_bytes() == b"damaged"


def test_two_empty_questions_are_passed_over_but_not_a_whole_file_of_them(server):
    good = [row(TASKS["qqp"], number, "train") for number in range(300)]
    files = server.repositories["dataset", "nyu-mll/glue"]
    files["qqp/train-00000-of-00001.parquet"] = parquet([*good, good[0] | {"question2": ""}])
    files["qqp/validation-00000-of-00001.parquet"] = parquet([good[0], *(5 * [good[0] | {"question2": ""}])])
    with pytest.raises(UserError, match=r"dev is not what .* 5 rows cannot be used"):
        get_data(["qqp"], progress=False)
    files["qqp/validation-00000-of-00001.parquet"] = parquet(good)
    assert get_data(["qqp"], progress=False)[0].rows["train"] == 300


def test_names_that_cannot_be_fetched_are_explained_before_anything_is_asked(server):
    for name, words in {
        "col": "Did you mean 'cola'",
        "cfimdb": "no public release to fetch .CS224N.* TEABERT_DATA",
        "more-rte": "no public release to fetch",
    }.items():
        with pytest.raises(UserError, match=words):
            get_data(["wnli", name], progress=False)
    assert server.requests == []


def test_missing_pyarrow_is_named_before_anything_is_asked(server, monkeypatch):
    monkeypatch.setattr(fetching, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'teabert\[data\]'"):
        get_data(["cola"], progress=False)
    assert server.requests == []


# Tasks


def test_a_task_that_is_not_there_names_the_command_that_fetches_it():
    with pytest.raises(UserError, match="or fetch it with: teabert data get stsb"):
        read_split(TASKS["stsb"], "train", None)


@pytest.mark.parametrize("name", ["stsb", "mrpc", "sick-entailment", "sick-relatedness"])
def test_public_sets_that_hold_rows_of_sts_are_never_trained_with_it(name):
    with pytest.raises(UserError, match=f"'{name}' is never trained together with 'sts': .* dev and test rows of sts"):
        parse_recipe({"tasks": ["sts", name]})
    parse_recipe({"tasks": ["sst", name]})


def test_public_questions_are_never_trained_with_the_courses_split_of_them():
    with pytest.raises(UserError, match="'qqp' is never trained together with 'quora'"):
        parse_recipe({"tasks": {"qqp": {"take": 10}, "quora": None}})


def test_cleaned_tasks_may_be_trained_with_sts():
    parse_recipe({"tasks": ["sts", *(name for name in TASKS if name.startswith("more-"))]})


def test_rte_and_qnli_count_entailment_as_yes():
    assert [TASKS[name].labels[1] for name in ("rte", "qnli", "wnli")] == ["0", "0", "1"]


COUNTS = {
    "more-cola": (8551, 1043),
    "more-rte": (2490, 277),
    "more-wnli": (635, 71),
    "more-mrpc": (3385, 470),
    "more-boolq": (9418, 3270),
    "more-sick-entailment": (4471, 499),
    "more-sick-relatedness": (4471, 499),
    "more-sts-semeval": (5983,),
    "more-mr": (7822,),
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_cleaned_row_can_be_used(name, real_data):
    tables = [read_split(TASKS[name], split, str(real_data)) for split in TASKS[name].files]
    assert tuple(len(table.examples) for table in tables) == COUNTS[name]
    assert not any(table.skipped for table in tables)


def test_all_cleaned_tasks_are_counted():
    assert set(COUNTS) == {name for name in TASKS if name.startswith("more-")}


# Any data set on the hub, by name


class Browsable(hubserver._Handler):
    """The endpoints that the package `datasets` asks besides: listings of folders and facts of paths"""

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        repo = re.fullmatch(r"/api/datasets/(.+?)/paths-info/.+", self.path).group(1)
        paths = json.loads(asked)["paths"] if asked.startswith("{") else re.findall(r"paths=([^&]+)", asked)
        self._send(json.dumps([fact for fact in self._facts(repo) if fact["path"] in paths]).encode(), True, "facts")

    def _answer(self, body):
        if asked := re.match(r"/api/datasets/(.+?)/tree/[^/?]+/?([^?]*)", self.path):
            facts = [fact for fact in self._facts(asked.group(1)) if fact["path"].startswith(asked.group(2))]
            return self._send(json.dumps(facts).encode(), body, "tree")
        return super()._answer(body)

    def _facts(self, repo):
        files = self.hub.repositories["dataset", repo]
        return [{"type": "file", "path": path, "size": len(data), "oid": "0" * 40} for path, data in files.items()]


READ = """
import json, sys
from teabert.errors import UserError
from teabert.tasks import Task
from teabert.tasks.reading import read_split
task = Task.model_validate(json.loads(sys.argv[1]))
try:
    table = read_split(task, sys.argv[2], None)
    print(json.dumps([[example.name, example.texts, example.label] for example in table.examples]))
except UserError as error:
    print("UserError:", error)
"""
MOODS = {"name": "moods", "texts": "said", "label": "mood", "kind": "classes", "labels": ["sad", "glad"]}


def read_by_name(place, split, folder, **facts):
    """What a process of its own reads: `datasets` looks at HF_ENDPOINT only once, when it is imported"""
    task = MOODS | {"files": dict.fromkeys(("train", "dev", "test"), place)} | facts
    command = [sys.executable, "-c", READ, json.dumps(task), split]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=surroundings, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def moods(monkeypatch):
    monkeypatch.setattr(hubserver, "_Handler", Browsable)
    with hubserver.serve() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        good = [{"said": "hooray", "mood": "glad"}, {"said": "oh no", "mood": "sad"}]
        files = {"train.jsonl": jsonl(good), "dev.jsonl": jsonl([*good, {"said": "hm", "mood": "so-so"}])}
        server.put("team/moods", files, "dataset")
        yield server


def test_any_data_set_on_the_hub_is_read_by_its_name(moods, tmp_path):
    assert json.loads(read_by_name("hub:team/moods", "train", tmp_path)) == [["1", ["hooray"], 1.0], ["2", ["oh no"], 0.0]]
    said = read_by_name("hub:team/moods", "dev", tmp_path)
    assert said.startswith("UserError: hub:team/moods dev row 3: label 'so-so' is not one of sad, glad.")
    said = read_by_name("hub:team/moods", "test", tmp_path)
    assert said.startswith("UserError: Cannot read test of hub:team/moods: ")


def test_a_data_set_that_is_a_script_is_refused_and_never_run(moods, tmp_path):
    moods.put("team/moods", {"moods.py": b"open('ran', 'w')"}, "dataset")
    said = read_by_name("hub:team/moods", "train", tmp_path)
    assert said.startswith("UserError: Cannot read train of hub:team/moods: ")
    assert "(RuntimeError)" in said
    assert everything(tmp_path / "cache") == []
    assert not list(tmp_path.glob("**/ran"))


def test_a_folder_of_the_same_name_is_never_taken_for_the_hub(moods, tmp_path):
    (tmp_path / "team" / "moods").mkdir(parents=True)
    assert "'hub:team/moods' means the hub, but team/moods stands in" in read_by_name("hub:team/moods", "train", tmp_path)
    assert moods.requests == []


def load_from(monkeypatch, load):
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(__version__="4.0.0", load_dataset=load))


def by_name(place, **facts):
    return Task.model_validate(MOODS | {"files": dict.fromkeys(("train", "dev", "test"), place)} | facts)


def test_config_and_the_hubs_names_of_the_splits_are_asked_for(monkeypatch):
    asked = []
    load_from(monkeypatch, lambda *names, **options: asked.append((*names, options)) or [{"said": "oh", "mood": "sad"}])
    for split in ("train", "dev", "test"):
        read_split(by_name("hub:team/moods:loud"), split, None)
    assert asked == [("team/moods", "loud", {"split": split}) for split in ("train", "validation", "test")]


def test_bad_rows_of_a_data_set_read_by_name_may_be_passed_over(monkeypatch):
    rows = [{"said": "oh", "mood": "so-so"}, {"said": "ah", "mood": "glad"}]
    load_from(monkeypatch, lambda *names, **options: rows)
    table = read_split(by_name("hub:team/moods", on_bad_row="skip"), "dev", None)
    assert len(table.examples) == 1
    assert table.skipped == ["hub:team/moods dev row 1: label 'so-so' is not one of sad, glad."]


@pytest.mark.parametrize("place", ["hub:", "hub:team/", "hub:../team/moods", "hub:a/b/c", "hub:team/moods:", "hub:/etc"])
def test_a_place_that_names_no_data_set_is_refused(place):
    with pytest.raises(UserError, match=r"does not name a data set\. Write hub:ORG/NAME or hub:ORG/NAME:CONFIG"):
        read_split(by_name(place), "train", None)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"Reading 'hub:team/moods' needs datasets, .* pip install 'teabert\[datasets\]'"):
        read_split(by_name("hub:team/moods"), "train", None)
