"""What bad luck and bad clients do to the server: never a 5xx of ours, never a lost answer, never another's slowness."""

import http.client
import json
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

import served
from served import until
from teabert.serving import gate, running
from teabert.serving.settings import ServeSettings

JSON = {"Content-Type": "application/json"}
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def client():
    with served.serving(served.Counting()) as client:
        yield client


def ask(client, *texts):
    return client.post("/v1/predict", json={"texts": list(texts)})


def test_nothing_that_the_description_allows_or_forbids_makes_a_server_error(client):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install '.[dev]'")
    schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == 9
    for operation in operations:
        _attack(operation, schemathesis.GenerationMode.POSITIVE)
        if operation.method == "post":  # the others take nothing that could be wrong
            _attack(operation, schemathesis.GenerationMode.NEGATIVE)


def _attack(operation, mode):
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def attack(case):
        answer = case.call()
        assert answer.status_code < 500 or answer.status_code == 503, (case.method, case.path, case.body, answer.text)
        assert answer.status_code in {int(status) for status in operation.definition.raw["responses"]} | {405, 404}

    attack()


def test_ten_thousand_malformed_bodies_are_each_answered_in_words(client):
    draw = random.Random(11711)
    good = json.dumps(
        {"texts": ["a film", ["one", "two"], {"text": "x", "tasks": ["mood"], "id": "7"}], "abstain": 0.5}
    ).encode()
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=20)
    found = {}
    for _ in range(10_000):
        connection.request("POST", "/v1/predict", _spoilt(good, draw), JSON)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        assert "results" in said or said["error"]
        found[answer.status] = found.get(answer.status, 0) + 1
    assert set(found) == {200, 400, 422}
    assert found[400] > 1000
    assert found[422] > 100


def _spoilt(body, draw):
    """A good body with a few bytes changed, lost, doubled or moved"""
    spoilt = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(spoilt))
        how = draw.randrange(4)
        if how == 0:
            spoilt[place] = draw.randrange(256)
        elif how == 1:
            del spoilt[place : place + draw.randint(1, 20)]
        elif how == 2:
            spoilt[place:place] = draw.choice(
                [b'"', b"[" * 50, b"{", b"null", b"\\ud800", b"\x00", b"1e999", b"NaN", b",:"]
            )
        else:
            spoilt[place:place] = spoilt[: draw.randint(1, 20)]
        spoilt = spoilt or bytearray(b" ")
    return bytes(spoilt)


def test_nul_and_lone_surrogates_are_answered_and_come_back_as_text(client):
    body = b'{"texts": ["\\ud800 \\u0000 x", {"text": "y", "tasks": ["\\udfff"], "id": "\\ud800"}], "tasks": ["mood"]}'
    results = client.post("/v1/predict", content=body, headers=JSON).json()["results"]
    assert results[0]["answers"]["mood"]["label"]
    assert results[1] == {"id": "?", "answers": {"?": results[1]["answers"]["?"]}}
    assert "Unknown task '?'" in results[1]["answers"]["?"]["error"]
    assert client.post("/v1/predict", content=b'{"\\ud800": 1}', headers=JSON).status_code == 422


@pytest.mark.parametrize(
    "sent", [b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/predict HTTP/1.1\r\nContent-Length: -5\r\n\r\n"]
)
def test_bytes_that_are_no_http_are_refused(client, sent):
    assert b" 400 " in served.raw(client, sent).split(b"\r\n")[0]
    assert ask(client, "a").status_code == 200


def test_slow_client_is_told_so_and_holds_up_nobody():
    with served.serving(served.Counting(), ServeSettings(body_s=0.5)) as client:
        slow = threading.Thread(
            target=lambda: said.append(served.raw(client, HEAD + b'Content-Length: 99\r\n\r\n{"texts"'))
        )
        said: list[bytes] = []
        slow.start()
        begun = time.monotonic()
        assert ask(client, "a").status_code == 200
        assert time.monotonic() - begun < 0.4
        slow.join()
    assert b" 408 " in said[0]
    assert b"not arrived as a whole after 0.5 seconds" in said[0]


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"])
def test_connection_that_never_ends_its_request_is_closed(monkeypatch, before):
    monkeypatch.setattr(running, "SILENT_S", 0.5)
    with served.serving(served.Counting()) as client:
        begun = time.monotonic()
        assert served.raw(client, before, b"GET / HTTP/1.1\r\nHost", wait=10).count(b"HTTP/1.1 ") == bool(before)
        assert time.monotonic() - begun < 5
        assert ask(client, "a").status_code == 200


def test_thousands_of_mistakes_in_one_request_are_answered_by_the_first_and_quickly(client):
    keys = {f"textz{number}": 0 for number in range(50_000)}
    bodies = [keys, {"texts": [1] * 500_000}, {"texts": [{"text": "a"} | keys]}, {"texts": ["a"], "k" * 1_000_000: 1}]
    for body in bodies:
        begun = time.monotonic()
        refused = client.post("/v1/predict", json=body)
        assert refused.status_code == 422
        assert len(refused.text) < 1000
        assert time.monotonic() - begun < 2


def test_mistake_of_ours_is_a_500_in_words_and_the_server_goes_on():
    model = served.Counting()
    with served.serving(model) as client:
        model.tasks = None
        failed = ask(client, "a")
        model.tasks = served.Counting().tasks
        assert ask(client, "a").status_code == 200
    assert failed.status_code == 500
    assert failed.json() == {"error": "The server made a mistake; its log says which.", "error_type": "Backend"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_health_tells_when_the_model_s_thread_has_ended():
    model = served.Counting()
    with served.serving(model, ServeSettings(deadline_s=1)) as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        model.answer_prepared = lambda prepared: sys.exit("no exception that the thread expects")
        in_vain = threading.Thread(target=ask, args=(client, "a"))
        in_vain.start()
        until(lambda: client.get("/healthz").status_code == 503)
        assert client.get("/readyz").status_code == 503
        in_vain.join()


def test_client_that_hangs_up_leaves_the_queue():
    model = served.Counting()
    model.free.clear()
    with served.serving(model) as client:
        body = b'{"texts": ["a"]}'
        whole = HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        threading.Thread(target=served.raw, args=(client, whole), kwargs={"wait": 20}).start()
        assert model.busy.wait(10)
        served.raw(client, whole, wait=0.2)
        until(lambda: "teabert_queue_questions 0.0" in client.get("/metrics").text)
        assert 'route="/v1/predict",status="499"' in client.get("/metrics").text
        model.free.set()
        assert ask(client, "b").status_code == 200
    assert [len(batch) for batch in model.batches] == [1, 1]


@pytest.mark.parametrize("promised", [True, False])
def test_hundred_megabytes_are_refused_and_not_kept(promised):
    size = 100 * 2**20
    pieces = (b" " * 2**20 for _ in range(size // 2**20))
    with served.process(0) as (running, address):
        httpx.post(f"{address}/v1/predict", json={"texts": ["a"]})
        before = _peak(running.pid)
        headers = JSON | ({"Content-Length": str(size)} if promised else {})
        refused = httpx.post(f"{address}/v1/predict", content=pieces, headers=headers, timeout=20)
        assert refused.status_code == 413
        assert "at most 2,097,152 are taken" in refused.json()["error"]
        assert _peak(running.pid) - before < 20 * 1024
        assert httpx.post(f"{address}/v1/predict", json={"texts": ["a"]}).status_code == 200


def _peak(process):
    """The most memory that a process has had, in KB"""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_oversized_body_is_thrown_away_for_a_moment_only(monkeypatch):
    monkeypatch.setattr(gate, "DROP_S", 0.3)
    with served.serving(served.Counting(), ServeSettings(max_body=10)) as client:
        begun = time.monotonic()
        said = served.raw(client, HEAD + b"Content-Length: 99\r\n\r\n" + b" " * 20, wait=10)
        assert time.monotonic() - begun < 3
    assert b" 413 " in said


def test_too_many_connections_are_turned_away():
    with served.serving(served.Counting(), ServeSettings(connections=3)) as client:
        held = [httpx.Client(base_url=client.base_url) for _ in range(4)]
        statuses = [each.get("/healthz").status_code for each in held]
        for each in held:
            each.close()
    assert statuses.count(503) >= 1
    assert statuses[0] == 200


@pytest.mark.parametrize("workers", [0, 2])
def test_sigterm_under_load_loses_no_accepted_request(workers):
    answered = {}

    def load(number, address):
        for count in range(10_000):
            text = f"client {number} text {count}"
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
            try:
                connection.request("POST", "/v1/predict", json.dumps({"texts": [text]}), JSON)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return
            answered[text] = (status, time.monotonic())

    with served.process(0.05, workers) as (running, address):
        clients = [threading.Thread(target=load, args=(number, address)) for number in range(16)]
        for each in clients:
            each.start()
        until(lambda: len(answered) > 50)
        told = time.monotonic()
        running.send_signal(signal.SIGTERM)
        said, errors = running.communicate(timeout=30)
        for each in clients:
            each.join(30)
    accepted = set(said.splitlines())
    assert len(accepted) > 50
    assert not accepted - set(answered), errors
    assert {status for status, _ in answered.values()} == {200}
    assert sum(when > told for _, when in answered.values()) >= 3
    assert running.returncode == -signal.SIGTERM


def test_load_from_many_clients_is_answered_without_an_error():
    model = served.Counting(0.002)
    with served.serving(model) as client:

        def load(number):
            for count in range(20):
                text = "x" * (1 + (number + count) % 40)
                answer = ask(client, text).json()["results"][0]["answers"]["mood"]
                assert answer["label"] == model.expected("mood", len(text)).label

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(load, range(16)))
    assert sum(map(len, model.batches)) == 320
    assert len(model.batches) < 200
