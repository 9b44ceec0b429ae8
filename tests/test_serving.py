"""The server's routes: every question answered in its place, limits in words, keys, metrics, tasks that come and go."""

import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from pydantic import SecretStr

import served
from served import until
from teabert.errors import UserError
from teabert.serving.app import make_app
from teabert.serving.batcher import slices
from teabert.serving.running import listen
from teabert.serving.settings import ServeSettings, serve_settings

KEY, OTHER, TOKEN = "a key of ours", "another key", served.TOKEN


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def model():
    return served.Counting()


@pytest.fixture
def client(model):
    with served.serving(model) as client:
        yield client


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    import tiny
    from teabert import parse_recipe, train

    world = tiny.write_world(tmp_path_factory.mktemp("world"))
    return train(parse_recipe(tiny.recipe(world, epochs=1)), world / "run").path


def ask(client, *texts, **more):
    return client.post("/v1/predict", json={"texts": list(texts), **more})


def metric(client, line):
    found = re.search(rf"^{re.escape(line)} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else None


def waiting(client):
    return metric(client, "teabert_queue_questions")


@contextmanager
def stuck_server(model, settings=None, admin=None, headers=None):
    """A server whose model is stuck in the batch of one question"""
    model.free.clear()
    with served.serving(model, settings, admin) as client, ThreadPoolExecutor(16) as pool:
        client.headers.update(headers or {})
        stuck = pool.submit(ask, client, "aaaa", tasks=["mood"])
        assert model.busy.wait(10)
        yield client, pool, stuck
        model.free.set()


# answers


def test_every_text_is_answered_under_every_task_that_takes_it(client, model):
    results = ask(client, "four", ["a", "bcd"]).json()["results"]
    assert list(results[0]["answers"]) == ["mood"]
    assert list(results[1]["answers"]) == ["same", "near"]
    mood = results[0]["answers"]["mood"]
    assert (mood["label"], mood["probability"]) == ("so-so", 0.9)
    assert mood["probabilities"] == {"bad": 0.05, "so-so": 0.9, "good": 0.05}
    assert results[1]["answers"]["near"]["score"] == 4.0
    assert [task for batch in model.batches for task, _ in batch] == ["mood", "same", "near"]


def test_bad_questions_have_an_error_in_their_place_and_good_ones_are_answered(client):
    texts = ["film", "", {"text": "film", "tasks": ["moods", "same"]}, {"text": served.POISON, "id": "x"}, "\ud800 \0"]
    results = ask(client, *texts[:4], tasks=["mood"]).json()["results"]
    assert results[0]["answers"]["mood"]["label"]
    assert "is empty" in results[1]["answers"]["mood"]["error"]
    assert "Unknown task 'moods'. Did you mean 'mood'?" in results[2]["answers"]["moods"]["error"]
    assert "takes a pair of texts" in results[2]["answers"]["same"]["error"]
    assert results[3]["id"] == "x"
    assert "failed on this text" in results[3]["answers"]["mood"]["error"]


def test_text_that_no_task_takes_says_so(client, model):
    model.tasks = {"mood": model.tasks["mood"]}
    assert ask(client, ["a", "b"]).json()["results"] == [
        {"answers": {}, "error": "No task of this model takes a pair of texts."}
    ]


def test_one_task_route_answers_in_order(client):
    answers = client.post("/v1/tasks/near/predict", json={"texts": [["a", "b"], ["a", "bc"], ["a", ""]]}).json()
    assert answers["task"] == "near"
    assert [answer.get("score") for answer in answers["answers"]] == [2.0, 3.0, None]
    missing = client.post("/v1/tasks/nearly/predict", json={"texts": ["a"]})
    assert (missing.status_code, missing.json()["error_type"]) == (404, "NotFound")
    assert "Did you mean 'near'?" in missing.json()["error"]


def test_abstaining_keeps_probabilities_and_gives_no_label(client):
    sure, unsure = (ask(client, "four", abstain=at).json()["results"][0]["answers"]["mood"] for at in (0.9, 0.91))
    assert sure["label"] == "so-so"
    assert unsure["label"] is None
    assert unsure["abstained"] is True
    assert unsure["probabilities"] == sure["probabilities"]


def test_requests_of_many_clients_share_batches(model):
    with stuck_server(model) as (client, pool, _):
        found = [pool.submit(ask, client, "x" * length) for length in range(1, 16)]
        until(lambda: waiting(client) == 15)
        model.free.set()
        labels = [each.result().json()["results"][0]["answers"]["mood"]["label"] for each in found]
    assert labels == [("bad", "so-so", "good")[length % 3] for length in range(1, 16)]
    assert len(model.batches) == 2


def test_attention_gives_words_and_weights_of_each_task(client):
    found = client.post("/v1/attention", json={"text": ["one two", "three"]}).json()["attention"]
    assert found["near"] == {"words": ["one", "two", "three"], "weights": [1 / 3] * 3, "second": 2}
    assert set(found) == {"same", "near"}
    found = client.post("/v1/attention", json={"text": "one", "tasks": ["same", "mood"]}).json()["attention"]
    assert "takes a pair" in found["same"]["error"]
    assert found["mood"]["second"] is None


def test_tasks_are_listed_with_what_they_take(client):
    assert client.get("/v1/tasks").json()["tasks"][2] == {
        "name": "near",
        "kind": "score",
        "texts": ["one", "two"],
        "labels": [],
        "range": [0.0, 5.0],
    }


def test_real_model_answers_as_its_predictor_does(real_run):
    from teabert import load

    predictor = load(real_run)
    texts = ["the film was great", ("how do i cook rice", "best way to cook rice")]
    with served.serving(predictor) as client:
        results = ask(client, *texts).json()["results"]
        odd = client.post(
            "/v1/predict", content=b'{"texts": ["\\ud800 \\u0000 film"]}', headers={"Content-Type": "application/json"}
        )
        seen = client.post("/v1/attention", json={"text": texts[1]}).json()["attention"]
        long = client.post("/tei/mood/predict", json={"inputs": "film " * 100})
        cut = client.post("/tei/mood/predict", json={"inputs": "film " * 100, "truncate": True})
    mood = predictor.predict(texts[0], task="mood")[0]
    assert results[0]["answers"]["mood"]["probabilities"] == pytest.approx(mood.probabilities, abs=1e-5)
    assert results[1]["answers"]["near"]["score"] == pytest.approx(
        predictor.predict(texts[1], task="near")[0].score, abs=1e-5
    )
    assert seen["same"]["words"] == " ".join(texts[1]).split()
    assert sum(seen["near"]["weights"]) == pytest.approx(1)
    assert odd.json()["results"][0]["answers"]["mood"]["label"]
    assert (long.status_code, cut.status_code) == (413, 200)
    assert "longer than the task takes" in long.json()["error"]


# text-embeddings-inference


@pytest.mark.parametrize(
    ("inputs", "several"),
    [("four", False), (["four"], False), ([["four"]], True), ([["four"], ["fo"]], True)],
)
def test_predict_has_the_shape_of_text_embeddings_inference(model, inputs, several):
    with served.serving(model, ServeSettings(task="mood")) as client:
        found = client.post("/predict", json={"inputs": inputs, "raw_scores": False, "truncate": False}).json()
    first = found[0] if several else found
    assert len(found) == (len(inputs) if several else 3)
    assert first[0] == {"score": 0.9, "label": "so-so"}
    assert [each["score"] for each in first] == sorted((each["score"] for each in first), reverse=True)


def test_pairs_and_raw_scores_of_text_embeddings_inference(client):
    assert client.post("/tei/near/predict", json={"inputs": [["a", "bc"]]}).json() == [[{"score": 3.0, "label": "near"}]]
    assert client.post("/tei/near/predict", json={"inputs": ["a", "bc"]}).json() == [{"score": 3.0, "label": "near"}]
    raw = client.post("/tei/mood/predict", json={"inputs": "four", "raw_scores": True}).json()
    assert raw[0]["score"] == pytest.approx(-0.10536, abs=1e-5)


def test_predict_asks_for_a_task_where_there_are_several(client):
    refused = client.post("/predict", json={"inputs": "four"})
    assert refused.status_code == 404
    assert "mood, same, near" in refused.json()["error"]
    with pytest.raises(UserError, match=r"Unknown task 'moody'\. Did you mean 'mood'"):
        make_app(served.Counting(), ServeSettings(task="moody"))


# limits


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"texts": ["a"] * 4}, 413, "has 4 texts; at most 3"),
        ({"texts": ["a", "b" * 51]}, 422, "Text 2 has 51 characters; at most 50"),
        ({"texts": ["a"], "tasks": ["a", "b", "c"]}, 413, "3 tasks are asked of a text; at most 2"),
        ({"texts": [["a", "b"]] * 3}, 413, "asks 6 questions (texts times tasks); at most 5"),
        ({"texts": ["a" * 300]}, 413, "The body has 314 bytes; at most 300"),
        ({"texts": []}, 422, "texts"),
        ({"text": ["a"]}, 422, "unknown key 'text'. Did you mean 'texts'?"),
        ({"texts": [["a", "b", "c"]]}, 422, "a text is a string, a pair is a list of two"),
        ({"texts": ["a"], "tasks": []}, 422, "tasks are a list of names"),
        ({"texts": ["a"], "abstain": 1.5}, 422, "abstain: 1.5 does not fit"),
        (["a"], 422, "no JSON object"),
    ],
)
def test_what_is_too_much_or_does_not_fit_is_refused_in_words(model, body, status, message):
    settings = ServeSettings(max_texts=3, max_characters=50, max_tasks=2, client_queue=5, max_body=300)
    with served.serving(model, settings) as client:
        refused = client.post("/v1/predict", json=body)
    assert refused.status_code == status
    assert message in refused.json()["error"]


def test_body_of_another_type_or_no_json_is_refused_in_words(client):
    json = {"Content-Type": "application/json"}
    assert client.post("/v1/predict", content=b'{"texts": ["a"]}').status_code == 415
    for content in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000):
        refused = client.post("/v1/predict", content=content, headers=json)
        assert refused.status_code == 400, content[:20]
        assert "no JSON" in refused.json()["error"]


def test_full_queue_answers_429_with_the_time_to_come_again(model):
    with stuck_server(model, ServeSettings(queue=2, client_queue=2)) as (client, pool, stuck):
        found = [pool.submit(ask, client, "b"), pool.submit(ask, client, "c")]
        until(lambda: waiting(client) == 2)
        refused = ask(client, "d")
        model.free.set()
        assert [each.result().status_code for each in [stuck, *found]] == [200] * 3
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert refused.json()["error_type"] == "Overloaded"


def test_deadline_answers_504_and_leaves_the_queue(model):
    model.free.clear()
    with served.serving(model, ServeSettings(deadline_s=0.3)) as client, ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda text: ask(client, text), ["a", "b"]))
        assert [each.status_code for each in found] == [504, 504]
        assert "No answer within 0.3 seconds" in found[0].json()["error"]
        assert metric(client, "teabert_queue_questions") == 0
        late = client.post("/v1/attention", json={"text": "a"})
        assert late.status_code == 504
        model.free.set()
        assert ask(client, "a").status_code == 200


def test_long_requests_are_tokenised_in_slices_so_that_others_get_their_turn():
    from teabert.requests import Request

    long = [Request("mood", "x" * 15_000 + str(number)) for number in range(5)]
    assert [len(some) for some in slices(long)] == [2, 2, 1]
    assert [len(some) for some in slices([long[0]] * 5)] == [5]


# keys


def test_key_is_wanted_where_one_is_set(model):
    with served.serving(model, ServeSettings(api_key=SecretStr(f"{KEY}, {OTHER}"))) as client:
        for path in ("/v1/tasks", "/metrics"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert client.get(path, headers=bearer(KEY + "x")).status_code == 401
            assert (
                client.get(path, headers=bearer(KEY)).status_code
                == client.get(path, headers=bearer(OTHER)).status_code
                == 200
            )
        for path in ("/", "/docs", "/page/page.js", "/openapi.json", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200
        assert client.get("/openapi.json").json()["security"] == [{"key": []}]
        assert client.post("/v1/predict", json={"texts": ["a"]}, headers=bearer(OTHER)).status_code == 200


def test_client_with_one_question_does_not_wait_for_a_client_with_many(model):
    settings = ServeSettings(api_key=SecretStr(f"{KEY},{OTHER}"), tokens=3)
    with stuck_server(model, settings, headers=bearer(KEY)) as (client, pool, _):
        many = pool.submit(ask, client, *["x"] * 9)
        until(lambda: waiting(client) == 9)
        one = pool.submit(client.post, "/v1/predict", json={"texts": ["yy"]}, headers=bearer(OTHER))
        until(lambda: waiting(client) == 10)
        model.free.set()
        assert one.result().status_code == many.result().status_code == 200
    assert model.batches[1] == [("mood", 1), ("mood", 2)]


def test_secrets_come_from_the_environment_and_are_not_shown(monkeypatch):
    monkeypatch.setenv("TEABERT_API_KEY", KEY)
    settings = serve_settings({"port": None}, ["tokens=99"])
    assert (settings.secrets("api_key"), settings.tokens, settings.port) == ([KEY], 99, 8000)
    assert KEY not in repr(settings)
    monkeypatch.setenv("TEABERT_ADMIN_TOKEN", "short")
    with pytest.raises(UserError, match="at least 8 characters; set a longer TEABERT_ADMIN_TOKEN"):
        serve_settings({})


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="client_queue 10 is more than queue 5"):
        serve_settings({}, ["queue=5", "client_queue=10"])
    with pytest.raises(UserError, match=r"unknown key 'tokenz'\. Did you mean 'tokens'"):
        serve_settings({}, ["tokenz=5"])


def test_taken_port_is_refused_in_words():
    with listen("127.0.0.1", 0) as taken, pytest.raises(UserError, match=r"Cannot listen at 127\.0\.0\.1"):
        listen("127.0.0.1", taken.getsockname()[1])


# tasks that come and go


@pytest.fixture
def admin_client(model, tmp_path):
    (tmp_path / "fromfolder").write_bytes(b"folderful")
    settings = ServeSettings(admin_token=SecretStr(TOKEN), task_folder=tmp_path, max_body=1000)
    with served.serving(model, settings, served.Changing(model)) as client:
        yield client


def test_task_is_added_and_removed_by_an_admin_only(admin_client):
    assert admin_client.post("/v1/tasks", content=b"fresh").status_code == 401
    assert admin_client.delete("/v1/tasks/mood", headers=bearer("not " + TOKEN)).status_code == 401
    added = admin_client.post("/v1/tasks", content=b"fresh", headers=bearer(TOKEN))
    assert added.json() == {"added": ["fresh"]}
    assert ask(admin_client, "four", tasks=["fresh"]).json()["results"][0]["answers"]["fresh"]["label"] == "so-so"
    assert admin_client.delete("/v1/tasks/fresh", headers=bearer(TOKEN)).json() == {"removed": ["fresh"]}
    assert "Unknown task" in ask(admin_client, "four", tasks=["fresh"]).json()["results"][0]["answers"]["fresh"]["error"]
    assert admin_client.delete("/v1/tasks/fresh", headers=bearer(TOKEN)).status_code == 404
    assert 'task="fresh"' not in admin_client.get("/metrics").text


def test_task_file_may_be_larger_than_a_request_and_named_in_the_folder(admin_client):
    assert admin_client.post("/v1/tasks", content=b"a" * 2000, headers=bearer(TOKEN)).status_code == 200
    added = admin_client.post("/v1/tasks", params={"file": "fromfolder"}, headers=bearer(TOKEN))
    assert added.json() == {"added": ["folderful"]}
    for name in ("../fromfolder", "/etc/passwd", "absent"):
        refused = admin_client.post("/v1/tasks", params={"file": name}, headers=bearer(TOKEN))
        assert refused.status_code == 422
        assert "Unknown task file" in refused.json()["error"]


@pytest.mark.parametrize(("content", "message"), [(b"", "The body is empty"), (b"no good!", "is no task file")])
def test_unusable_task_file_is_refused_in_words(admin_client, content, message):
    refused = admin_client.post("/v1/tasks", content=content, headers=bearer(TOKEN))
    assert refused.status_code == 422
    assert message in refused.json()["error"]


@pytest.mark.parametrize("workers", [0, 2])
def test_real_task_file_is_added_to_a_real_model_and_removed(real_run, tmp_path, workers):
    from teabert import load
    from teabert.adding import add_task
    from teabert.serving.adding import TaskFiles
    from teabert.serving.workers import Workers

    shutil.copytree(real_run, tmp_path / "copy")
    world = real_run.parent
    task = {"texts": "sentence", "label": "mood", "kind": "classes", "labels": [0, 1, 2, 3, 4], "files": "mood-{split}.tsv"}
    given = {"tasks": {"fresh": task}, "data": str(world / "data"), "train": {"epochs": 1}}
    content = add_task(tmp_path / "copy", given).read_bytes()
    predictor = load(real_run)
    admin = TaskFiles(predictor)
    team = Workers(predictor, admin, workers, 1, lambda: None) if workers else None
    with served.serving(predictor, ServeSettings(admin_token=SecretStr(TOKEN)), team or admin, team) as client:
        before = ask(client, "the film", tasks=["mood"]).json()
        added = client.post("/v1/tasks", content=content, headers=bearer(TOKEN))
        assert added.json() == {"added": ["fresh"]}
        answers = ask(client, "the film").json()["results"][0]["answers"]
        assert set(answers) == {"mood", "fresh"}
        assert {"mood": answers["mood"]} == before["results"][0]["answers"]
        again = client.post("/v1/tasks", content=content, headers=bearer(TOKEN))
        assert (again.status_code, "already has a task 'fresh'" in again.json()["error"]) == (422, True)
        assert client.post("/v1/tasks", content=content[:-9], headers=bearer(TOKEN)).status_code == 422
        assert client.delete("/v1/tasks/mood", headers=bearer(TOKEN)).status_code == 422
        assert client.delete("/v1/tasks/fresh", headers=bearer(TOKEN)).json() == {"removed": ["fresh"]}
        assert ask(client, "the film").json() == before


def test_without_a_token_no_task_can_be_changed(model):
    with served.serving(model, None, served.Changing(model)) as client:
        assert client.post("/v1/tasks", content=b"fresh").status_code == 405
        assert client.delete("/v1/tasks/mood").status_code in (404, 405)
        assert "mood" in model.tasks


def test_questions_that_wait_are_prepared_anew_when_tasks_change(model):
    settings = ServeSettings(admin_token=SecretStr(TOKEN), tokens=4)
    with stuck_server(model, settings, served.Changing(model)) as (client, pool, stuck):
        found = [pool.submit(ask, client, ["aa", "bb"], tasks=[task]) for task in ("same", "near")]
        until(lambda: waiting(client) == 2)
        removed = pool.submit(client.delete, "/v1/tasks/same", headers=bearer(TOKEN))
        until(lambda: metric(client, "teabert_queue_calls") == 1)
        model.free.set()
        assert removed.result().status_code == stuck.result().status_code == 200
        same, near = (each.result().json()["results"][0]["answers"] for each in found)
    assert "Unknown task 'same'" in same["same"]["error"]
    assert near["near"]["score"] == 4.0


# what is told


def test_metrics_count_requests_questions_and_batches(client):
    ask(client, "four", "", served.POISON)
    ask(client, {"text": "a", "tasks": ["invented by a client"]})
    client.get("/invented/by/a/client")
    client.post("/tei/mood/predict", json={"inputs": "four"})
    assert metric(client, 'teabert_requests_total{route="/v1/predict",status="200"}') == 2
    assert metric(client, 'teabert_requests_total{route="other",status="404"}') == 1
    assert metric(client, 'teabert_request_seconds_count{route="/tei/{name}/predict"}') == 1
    assert metric(client, 'teabert_questions_total{outcome="answered",task="mood"}') == 2
    assert metric(client, 'teabert_questions_total{outcome="refused",task="mood"}') == 1
    assert metric(client, 'teabert_questions_total{outcome="failed",task="mood"}') == 1
    assert metric(client, 'teabert_questions_total{outcome="refused",task="unknown"}') == 1
    assert metric(client, 'teabert_question_seconds_count{task="mood"}') == 2
    assert metric(client, "teabert_batch_tokens_sum") == 8
    assert "invented" not in client.get("/metrics").text


def test_pages_carry_a_policy_and_name_no_other_host(client):
    for path in ("/", "/docs", "/page/page.js", "/page/docs.js", "/page/style.css", "/page/icon.svg"):
        found = client.get(path)
        assert found.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert found.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", found.text)
    assert client.head("/").status_code == 200


def test_description_holds_every_body_and_no_reference_leads_nowhere(client):
    whole = client.get("/openapi.json").json()
    references = set(re.findall(r'"#/components/schemas/(\w+)"', client.get("/openapi.json").text))
    assert references <= set(whole["components"]["schemas"])
    assert {"PredictBody", "TaskBody", "AttentionBody", "InferenceBody", "Item"} <= references


def test_errors_are_json_whatever_the_path(client):
    for answer in (client.get("/nowhere"), client.get("/v1/predict"), client.put("/")):
        assert set(answer.json()) == {"error", "error_type"}


def test_command_serves_a_run_until_it_is_interrupted(real_run):
    command = [sys.executable, "-m", "teabert.cli", "serve", str(real_run), "--port", "0", "--task", "mood"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            said = running.stdout.readline()
            assert said.startswith("Serving mood, same, near at http://127.0.0.1:")
            address = re.search(r"http://\S+", said)[0]
            assert httpx.post(f"{address}/predict", json={"inputs": "film"}).json()[0]["label"] in "01234"
            running.send_signal(signal.SIGINT)
            assert running.wait(20) == 0
            assert running.stdout.read() == "Stopped.\n"
        finally:
            running.kill()


def test_command_lists_its_settings_with_their_meaning():
    command = [sys.executable, "-m", "teabert.cli", "serve", "--settings"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name, field in ServeSettings.model_fields.items():
        assert name in said
        assert field.description.split()[0] in said


def test_missing_extra_names_its_install_command():
    code = (
        "import sys\nsys.modules['fastapi'] = None\nfrom pathlib import Path\nfrom teabert.serving.running import serve\n"
        "from teabert.serving.settings import ServeSettings\n"
        "try:\n    serve(Path('nowhere'), ServeSettings(), print)\nexcept ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'teabert[serve]'" in done.stdout, done.stderr
