"""Serving on a CPU: 32 clients against `teabert serve`, against an app around HuggingFace pipelines, and the model alone.

    python benchmarks/serve.py [--out results/speed/serve.md] [--requests 2000] [--rounds 3]

MiniLM-L6 with heads that nobody trained (they cost the same), real texts of three tasks (TEABERT_DATA), one text a
request, tasks mixed. Rounds of the contenders alternate; all clients together are one process on the same machine, which
takes 0.03 ms of processor time a request. `teabert serve` is as it starts by itself. The app has one pipeline a task,
called one text after the other so that all threads are the model's. `alone` is the Predictor without HTTP, given as many
texts at a time as there are clients, or all at once.
"""

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from teabert.config import Recipe, parse_recipe
from teabert.hub import encoder_folder
from teabert.predictor import Predictor, load
from teabert.progress import Quiet
from teabert.requests import Request
from teabert.runs import Run, machine_facts, save_shape

CLIENTS = 32
TASKS = ("sst", "quora", "sts")
MANY = 32
"""Tasks of the model that shows what a task more costs."""
SAME = 40
"""How often the same text is asked, to compare one task with all of them."""
Asked = tuple[str, str | tuple[str, str]]
"""A task and its text or pair."""


def recipe(precision: str) -> Recipe:
    """Three real tasks, pairs encoded together as pipelines do."""
    return parse_recipe({"tasks": list(TASKS), "train": {"precision": precision}})


def many(count: int) -> Recipe:
    """So many tasks that read like SST."""
    labels = [str(label) for label in range(5)]
    task = {"texts": "sentence", "kind": "classes", "labels": labels, "files": "{split}.csv"}
    return parse_recipe({"tasks": {f"task{n}": task for n in range(count)}, "train": {"precision": "fp32"}})


def make_run(path: Path, made: Recipe) -> Path:
    """A run folder as training leaves it, its heads as they start."""
    import torch

    from teabert.model import assemble
    from teabert.pretrained import load_encoder
    from teabert.text import TextEncoder

    folder = encoder_folder(made.encoder)
    torch.manual_seed(made.train.seed)
    model = assemble(made, load_encoder(folder)[0])
    run = Run.create(path, made, {"seed": made.train.seed})
    TextEncoder.load(folder, model.encoder.shape.longest).save(path)
    save_shape(run, model.encoder.shape)
    run.save_best(model.state_dict(), {})
    return path


def real_texts(predictor: Predictor, count: int) -> list[Asked]:
    """Dev texts of all tasks, as many of each, in an order of chance."""
    asked: list[Asked] = []
    for task in predictor.tasks.values():
        examples = predictor.read_split(task, "dev", Quiet())
        chosen = random.Random(11711).sample(examples, count // len(predictor.tasks))
        asked += [(task.name, each.texts[0] if len(each.texts) == 1 else (each.texts[0], each.texts[1])) for each in chosen]
    random.Random(0).shuffle(asked)
    return asked


# the contenders' processes


@contextmanager
def process(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server's process, and its first line of output"""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, running.stdout.readline()
        finally:
            running.terminate()


def ours(run: Path) -> Any:
    """The command `teabert serve`"""
    return process(sys.executable, "-m", "teabert.cli", "serve", str(run), "--port", "0")


def serve_pipelines(precision: str) -> None:
    """What a user writes today: one pipeline for each task, behind FastAPI."""
    import socket

    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, TextClassificationPipeline, logging

    logging.set_verbosity_error()
    folder = encoder_folder("minilm")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pipelines = {}
    for name, task in recipe(precision).tasks.items():
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=task.outputs, dtype=dtype)
        pipelines[name] = TextClassificationPipeline(model=model.eval(), tokenizer=tokenizer, top_k=None)

    class Text(BaseModel):
        text: str
        text_pair: str | None = None

    app = FastAPI()

    @app.post("/{task}")
    async def predict(task: str, body: Text) -> Any:
        return pipelines[task](body.model_dump(exclude_none=True), truncation=True, max_length=512)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])


def answer_alone(run: str, count: int) -> None:
    """At every line of input, so many texts at a time (0: all at once) by the Predictor itself: seconds out."""
    predictor = load(run)
    requests = [Request(task, text) for task, text in real_texts(predictor, count)]
    predictor.answers(requests[:200])
    print("ready", flush=True)
    for line in sys.stdin:
        size = int(line) or len(requests)
        begun = time.perf_counter()
        for start in range(0, len(requests), size):
            predictor.answers(requests[start : start + size])
        print(time.perf_counter() - begun, flush=True)


# the clients


def ask_ours(asked: Asked) -> bytes:
    """A request to our server"""
    task, text = asked
    return post(f"/v1/tasks/{task}/predict", {"texts": [text]})


def ask_pipelines(asked: Asked) -> bytes:
    """A request to the app around pipelines"""
    task, text = asked
    return post(f"/{task}", {"text": text} if isinstance(text, str) else {"text": text[0], "text_pair": text[1]})


def post(path: str, body: Any) -> bytes:
    """The bytes of a request"""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def client(port: int, requests: Iterator[bytes], seconds: list[float], errors: list[str]) -> None:
    """One connection that asks the next request as soon as the one before is answered"""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for request in requests:
        begun = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length, head
        body = await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - begun)
        if b" 200 " not in head[:15] or b'"error"' in body:
            errors.append(body.decode())
    writer.close()


async def now_and_then(port: int, request: bytes, pause: float) -> None:
    """A client that asks again and again, with pauses, until it is cancelled"""
    while True:
        await client(port, iter([request]), [], [])
        await asyncio.sleep(pause)


async def load_of(port: int, requests: Sequence[bytes], beside: bytes | None) -> dict[str, Any]:
    """All requests from all clients: how long, and how long each"""
    seconds: list[float] = []
    errors: list[str] = []
    shared = iter(requests)
    other = asyncio.create_task(now_and_then(port, beside, 0.2)) if beside else None
    begun = time.perf_counter()
    await asyncio.gather(*(client(port, shared, seconds, errors) for _ in range(CLIENTS)))
    spent = time.perf_counter() - begun
    if other:
        other.cancel()
    return {"seconds": spent, "each": seconds, "errors": errors}


def fire(line: str, requests: Sequence[bytes], beside: bytes | None = None) -> dict[str, Any]:
    """The load against the server whose first line this is"""
    import uvloop

    return uvloop.run(load_of(port_of(line), requests, beside))


def port_of(line: str) -> int:
    """Where a server listens, by its first line"""
    found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
    assert found, f"a server did not start: {line!r}"
    return int(found[1])


# what is measured


def throughput(precision: str, count: int, rounds: int, work: Path) -> list[dict[str, Any]]:
    """Requests a second of every contender, in alternating rounds."""
    run = make_run(work / precision, recipe(precision))
    asked = real_texts(load(run), count)
    mine, theirs = [ask_ours(each) for each in asked], [ask_pipelines(each) for each in asked]
    attention = post("/v1/attention", {"text": next(text for _, text in asked if isinstance(text, str))})
    found: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        _, us = stack.enter_context(ours(run))
        _, them = stack.enter_context(process(sys.executable, __file__, "--pipelines", precision))
        alone, _ = stack.enter_context(process(sys.executable, __file__, "--alone", str(run), "--requests", str(count)))
        for line, requests in ((us, mine), (them, theirs)):
            fire(line, requests[:200])  # warms up
        for number in range(rounds):
            found.setdefault("pipelines", []).append(fire(them, theirs))
            found.setdefault("teabert serve", []).append(fire(us, mine))
            found.setdefault("teabert serve, attention asked beside", []).append(fire(us, mine, attention))
            found.setdefault(f"alone, {CLIENTS} at a time", []).append(alone_round(alone, CLIENTS))
            found.setdefault("alone, all at once", []).append(alone_round(alone, 0))
            print(f"{precision} round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return [summary(precision, name, len(asked), results) for name, results in found.items()]


def alone_round(running: "subprocess.Popen[str]", size: int) -> dict[str, Any]:
    """All texts once, without HTTP"""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(f"{size}\n")
    running.stdin.flush()
    return {"seconds": float(running.stdout.readline()), "each": [], "errors": []}


def summary(precision: str, name: str, count: int, results: list[dict[str, Any]]) -> dict[str, Any]:
    """All rounds of a contender as one row"""
    speeds = [count / each["seconds"] for each in results]
    each = sorted(1000 * second for result in results for second in result["each"])
    row = {
        "precision": precision,
        "contender": name,
        "requests/s": count * len(results) / sum(r["seconds"] for r in results),
    }
    row |= {"lowest": min(speeds), "highest": max(speeds), "errors": sum(len(result["errors"]) for result in results)}
    for part in (50, 95, 99):
        row[f"p{part} ms"] = each[min(len(each) - 1, len(each) * part // 100)] if each else None
    return row


def tasks_more(work: Path) -> dict[str, float]:
    """What 32 tasks cost beside one: memory after the same load, and time on the same text."""
    text = "The harbour was quiet, and the boats that had left at dawn were not back yet when the fog came in."
    memory, medians = {}, {}
    for count in (1, MANY):
        run = make_run(work / f"tasks{count}", many(count))
        with ours(run) as (running, line):
            fire(line, [post("/v1/predict", {"texts": [f"{text} {n}"], "tasks": ["task0"]}) for n in range(200)])
            memory[count] = memory_of(running.pid)
            if count == MANY:
                asked = {1: ["task0"], MANY: [f"task{n}" for n in range(MANY)]}
                requests = {size: post("/v1/predict", {"texts": [text], "tasks": names}) for size, names in asked.items()}
                medians = _alternating(port_of(line), requests)
    return {
        "memory of 1 task, MB": memory[1],
        f"memory of {MANY} tasks, MB": memory[MANY],
        "memory ratio": memory[MANY] / memory[1],
        "1 task, ms": medians[1],
        f"{MANY} tasks on the same text, ms": medians[MANY],
        "time ratio": medians[MANY] / medians[1],
    }


def memory_of(server: int) -> float:
    """Megabytes of all processes of a server, counting once what they share"""
    import psutil

    processes = [psutil.Process(server), *psutil.Process(server).children(recursive=True)]
    return sum(each.memory_full_info().pss for each in processes) / 2**20


def _alternating(port: int, requests: dict[int, bytes]) -> dict[int, float]:
    """The median milliseconds of each request, asked in turns by one client"""
    seconds: dict[int, list[float]] = {name: [] for name in requests}
    for _ in range(SAME):
        for name, request in requests.items():
            asyncio.run(client(port, iter([request] * 3), seconds[name], []))
    return {name: 1000 * statistics.median(found) for name, found in seconds.items()}


def table(rows: list[dict[str, Any]], more: dict[str, float], count: int, rounds: int) -> str:
    """The result as Markdown."""
    facts = machine_facts()
    lines = [
        "# Serving on a CPU: 32 clients, three tasks mixed",
        "",
        f"`python benchmarks/serve.py`. {facts['processor']}, {facts['threads']} threads, torch {facts['torch']},"
        f" teabert {facts['teabert']} at {facts['commit']}. Encoder all-MiniLM-L6-v2; SST, Quora, STS dev texts, one a"
        f" request, {CLIENTS} clients on the same machine; {count} requests a round, {rounds} alternating rounds, and their"
        " range. `alone` is without HTTP.",
        "",
        "| precision | contender | requests/s | range | against pipelines | against alone, 32 at a time | p50 | p95 | p99"
        " | errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        same = {other["contender"]: other for other in rows if other["precision"] == row["precision"]}
        ratios = [row["requests/s"] / same[name]["requests/s"] for name in ("pipelines", f"alone, {CLIENTS} at a time")]
        cells = [
            row["precision"],
            row["contender"],
            f"{row['requests/s']:.1f}",
            f"{row['lowest']:.1f}-{row['highest']:.1f}",
        ]
        cells += [f"{ratio:.2f}x" for ratio in ratios]
        cells += [f"{row[key]:.0f} ms" if row[key] is not None else "" for key in ("p50 ms", "p95 ms", "p99 ms")]
        lines.append(f"| {' | '.join([*cells, str(row['errors'])])} |")
    lines += ["", "| what a task more costs | |", "|---|---|"]
    lines += [f"| {name} | {value:.2f}{'x' if 'ratio' in name else ''} |" for name, value in more.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, and write it where --out says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--pipelines", metavar="PRECISION", help=argparse.SUPPRESS)
    parser.add_argument("--alone", metavar="RUN", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.pipelines:
        serve_pipelines(given.pipelines)
        return
    if given.alone:
        answer_alone(given.alone, given.requests)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for precision in given.precisions:
            rows += throughput(precision, given.requests, given.rounds, Path(work))
        more = tasks_more(Path(work))
    shown = table(rows, more, given.requests, given.rounds)
    print(shown)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(shown, encoding="utf-8")
        result = {"machine": machine_facts(), "rows": rows, "tasks": more}
        given.out.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
