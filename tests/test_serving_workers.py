"""Processes that compute for the server: the same answers; it goes on whatever dies, and leaves nobody behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import predictors
import served
from served import until
from teabert import load
from teabert.errors import UserError
from teabert.serving.batcher import FAILED
from teabert.serving.workers import MOST, Workers, how_many

ADMIN = {"Authorization": f"Bearer {served.TOKEN}"}
WORDS = st.lists(st.sampled_from(["the", "film", "was", "good", "bad", "not", "dull"]), min_size=1, max_size=30)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked, on Linux only")


@contextmanager
def command(run, *options):
    """`teabert serve` with two workers; gives the process and a client"""
    line = [sys.executable, "-m", "teabert.cli", "serve", str(run), "--port", "0", "--workers", "2", *options]
    given = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | {"TEABERT_ADMIN_TOKEN": served.TOKEN}}
    with subprocess.Popen(line, **given) as running:
        try:
            address = re.search(r"http://\S+", running.stdout.readline())[0]
            with httpx.Client(base_url=address, timeout=20) as client:
                yield running, client
        finally:
            running.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory, text):
    return predictors.write_run(tmp_path_factory.mktemp("runs") / "run", text, "attention")


@pytest.fixture(scope="module")
def client(run):
    with command(run) as (_, client):
        yield client


def ask(at, *texts, **more):
    return httpx.post(f"{at}/v1/predict", json={"texts": list(texts), **more}, timeout=20)


def mood(at, text):
    return ask(at, text, tasks=["mood"]).json()["results"][0]["answers"]["mood"]


def children(running):
    """The nursery, which comes first, and the workers"""
    (nursery,) = psutil.Process(running.pid).children()
    return [nursery, *nursery.children()]


def gone(processes):
    """Whether they have ended; what nobody has buried yet has"""
    return all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in processes)


# the same answers


def test_workers_answer_any_mix_as_the_predictor_does(run, client):
    predictor = load(run)
    single = [name for name, task in predictor.tasks.items() if len(task.texts) == 1]

    @given(texts=st.lists(WORDS.map(" ".join), min_size=1, max_size=20), names=st.sets(st.sampled_from(single), min_size=1))
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    def same(texts, names):
        body = {"texts": texts, "tasks": sorted(names)}
        results = client.post("/v1/predict", json=body).json()["results"]
        for result, wanted in zip(results, predictor.predict(texts, tasks=sorted(names)), strict=True):
            for name, answer in wanted.items():
                found = result["answers"][name]
                assert found.get("probabilities", {}) == pytest.approx(answer.probabilities, abs=1e-5)
                assert found.get("score") == (None if answer.score is None else pytest.approx(answer.score, abs=1e-5))

    same()


def test_attention_through_workers_is_the_predictor_s(run, client):
    predictor = load(run)
    found = client.post("/v1/attention", json={"text": "the film was good"}).json()["attention"]
    for name, shown in found.items():
        wanted = predictor.attention("the film was good", name)
        assert shown["words"] == wanted.words
        assert shown["weights"] == pytest.approx(wanted.weights, abs=1e-5)


def test_bad_questions_harm_no_other_and_errors_come_back_in_words():
    with served.process(0, 2) as (_, address):
        results = ask(address, "aa", served.POISON, ["a", "b"], "bbb", tasks=["mood"]).json()["results"]
        found = [each["answers"]["mood"] for each in results]
        assert [each.get("label") is not None for each in found] == [True, False, False, True]
        assert (found[1]["error"], "takes one text" in found[2]["error"]) == (FAILED, True)
        answer = httpx.post(f"{address}/v1/attention", json={"text": "a b", "tasks": ["no such"]}).json()
        assert "Unknown task 'no such'" in answer["attention"]["no such"]["error"]


def test_limits_hold_with_workers():
    with served.process(1, 2, deadline_s=0.3, queue=4, client_queue=4) as (_, address), ThreadPoolExecutor(8) as pool:
        slow = [pool.submit(ask, address, f"text {number}", tasks=["mood"]) for number in range(8)]
        statuses = {each.result().status_code for each in slow}
        many = ask(address, *"abcde", tasks=["mood"])
    assert statuses <= {429, 504}
    assert 504 in statuses
    assert many.status_code == 413


# tasks that come and go


def test_tasks_come_and_go_in_all_workers_while_they_answer():
    with served.process(0.005, 2) as (running, address), ThreadPoolExecutor(8) as pool:
        stop = threading.Event()

        def load(number):
            found = []
            while not stop.is_set():
                found.append("label" in mood(address, "x" * number))
            return found

        loads = [pool.submit(load, number) for number in range(1, 9)]
        for _ in range(5):
            added = httpx.post(f"{address}/v1/tasks", content=b"fresh", headers=ADMIN)
            assert added.json() == {"added": ["fresh"]}
            answers = ask(address, *["x" * size for size in range(1, 17)], tasks=["fresh"]).json()["results"]
            assert all("label" in each["answers"]["fresh"] for each in answers)
            assert httpx.post(f"{address}/v1/tasks", content=b"no file!", headers=ADMIN).status_code == 422
            assert httpx.delete(f"{address}/v1/tasks/fresh", headers=ADMIN).json() == {"removed": ["fresh"]}
            answers = ask(address, "x", tasks=["fresh"]).json()["results"]
            assert "Unknown task" in answers[0]["answers"]["fresh"]["error"]
        stop.set()
        assert all(ok for each in loads for ok in each.result())
        assert len(children(running)) == 3


def test_all_read_the_same_task_file_whatever_becomes_of_it_meanwhile(tmp_path):
    seen = []

    class Reading(Workers):
        def __init__(self):
            pass

        def _change(self, method, given):
            (tmp_path / "intent.task").unlink(missing_ok=True)  # as when the request's folder goes before all have read it
            seen.append((method, given.name, given.read_bytes() if given.is_file() else None))

    (tmp_path / "intent.task").write_bytes(b"a task")
    Reading().add(tmp_path / "intent.task")
    Reading().add(tmp_path / "intent.task")
    assert seen == [("add", "intent.task", b"a task"), ("add", "intent.task", None)]


# what dies


def test_killed_workers_are_replaced_and_nobody_notices():
    with served.process(0.02, 2) as (running, address), ThreadPoolExecutor(8) as pool:
        before = children(running)[1:]
        loads = [pool.submit(lambda: [mood(address, "abc") for _ in range(30)]) for _ in range(8)]
        for worker in before:
            time.sleep(0.1)
            worker.kill()
        assert all("label" in answer for each in loads for answer in each.result())
        after = children(running)[1:]
        assert len(after) == 2
        assert not {each.pid for each in before} & {each.pid for each in after}
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_text_that_kills_workers_is_refused_and_harms_no_other():
    with served.process(0, 2) as (_, address):
        results = ask(address, "aa", "b", served.DEADLY, "ccc", tasks=["mood"]).json()["results"]
        found = [each["answers"]["mood"] for each in results]
        assert [each.get("label") is not None for each in found] == [True, True, False, True]
        assert found[2]["error"] == FAILED
        assert "label" in mood(address, "abc")


def test_server_computes_itself_where_no_worker_can_be_forked():
    with served.process(0, 2) as (running, address):
        processes = children(running)
        for each in processes:
            each.kill()
        until(lambda: gone(processes))
        assert all("label" in mood(address, "x" * size) for size in range(1, 9))
        assert httpx.post(f"{address}/v1/tasks", content=b"fresh", headers=ADMIN).json() == {"added": ["fresh"]}
        assert "label" in ask(address, "x", tasks=["fresh"]).json()["results"][0]["answers"]["fresh"]
        running.terminate()
        running.wait(10)


def test_change_of_tasks_does_without_a_nursery_that_has_died():
    with served.process(0, 2) as (running, address):
        nursery, *workers = children(running)
        nursery.kill()
        assert "label" in mood(address, "abc")
        assert httpx.post(f"{address}/v1/tasks", content=b"fresh", headers=ADMIN).json() == {"added": ["fresh"]}
        answers = ask(address, *["x" * size for size in range(1, 17)], tasks=["fresh"]).json()["results"]
        assert all("label" in each["answers"]["fresh"] for each in answers)
        until(lambda: gone(workers))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nobody_outlives_the_server(end):
    with served.process(0.2, 2) as (running, address):
        processes = children(running)
        for each in processes:
            each.send_signal(signal.SIGTERM)  # as a service manager does, to all at once
        asked = threading.Thread(target=lambda: said.append(answer(address)))
        said = []
        asked.start()
        time.sleep(0.1)
        running.send_signal(end)
        until(lambda: gone(processes))
        running.wait(10)
        asked.join(10)
    assert said == [200 if end == signal.SIGTERM else None]


def answer(address):
    try:
        return ask(address, "abc").status_code
    except httpx.HTTPError:
        return None


def test_ctrl_c_reaches_all_and_what_was_accepted_is_answered(run):
    with command(run) as (running, client):
        processes = children(running)
        assert client.post("/v1/predict", json={"texts": ["film"]}).status_code == 200
        for each in processes:
            each.send_signal(signal.SIGINT)
        assert client.post("/v1/predict", json={"texts": ["film"]}).status_code == 200
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 0
        assert running.stdout.read() == "Stopped.\n"
        assert gone(processes)


# how many


def test_there_are_as_many_as_asked_for_or_one_for_each_thread():
    assert [how_many(None, "cpu", threads) for threads in (1, 2, 4, 99)] == [0, 2, 4, MOST]
    assert [how_many(0, "cpu", 4), how_many(1, "cpu", 4), how_many(3, "cpu", 1)] == [0, 1, 3]
    assert [how_many(wanted, "cuda", 4) for wanted in (None, 0)] == [0, 0]
    with pytest.raises(UserError, match="workers: 2 cannot be had: they are for processors, and this model is on 'cuda'"):
        how_many(2, "cuda", 4)


@pytest.mark.parametrize("wanted", ["-1", "65"])
def test_impossible_number_is_refused_in_a_line(run, wanted):
    line = [sys.executable, "-m", "teabert.cli", "serve", str(run), "--port", "0", "--workers", wanted]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "workers" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
