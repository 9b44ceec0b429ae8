"""What happens in the server, as Prometheus reads it: requests by route, questions by task, batches, the queue."""

import time
from collections.abc import Sequence

from teabert.errors import missing_extra
from teabert.serving.queue import FairQueue, Question

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
        except ImportError:
            raise missing_extra("prometheus-client", "serve", "The server") from None
        self.registry = at = CollectorRegistry()
        ProcessCollector(registry=at)
        PlatformCollector(registry=at)
        self.requests = Counter("teabert_requests", "HTTP requests", ["route", "status"], registry=at)
        self.request_seconds = Histogram(
            "teabert_request_seconds",
            "HTTP requests, from their first byte to their answer",
            ["route"],
            buckets=SECONDS,
            registry=at,
        )
        self.questions = Counter("teabert_questions", "Texts asked about, by task", ["task", "outcome"], registry=at)
        self.question_seconds = Histogram(
            "teabert_question_seconds", "From a question's arrival to its answer", ["task"], buckets=SECONDS, registry=at
        )
        self.batch_seconds = Histogram("teabert_batch_seconds", "The model at a batch", buckets=SECONDS, registry=at)
        self.batch_questions = Histogram("teabert_batch_questions", "Questions in a batch", buckets=SIZES, registry=at)
        self.batch_tokens = Histogram("teabert_batch_tokens", "Tokens in a batch", buckets=TOKENS, registry=at)
        self.waiting = Gauge("teabert_queue_questions", "Questions that wait", registry=at)
        self.waiting_tokens = Gauge("teabert_queue_tokens", "Tokens that wait", registry=at)
        self.waiting_calls = Gauge("teabert_queue_calls", "Attention and changes of tasks that wait", registry=at)
        self.waiting_clients = Gauge("teabert_queue_clients", "Clients whose questions wait", registry=at)

    def watch(self, queue: FairQueue) -> None:
        """Read the queue's lengths whenever they are asked for."""
        self.waiting.set_function(lambda: queue.questions)
        self.waiting_tokens.set_function(lambda: queue.tokens)
        self.waiting_calls.set_function(lambda: len(queue.calls))
        self.waiting_clients.set_function(lambda: len(queue.lines))

    def request(self, route: str, status: int, seconds: float) -> None:
        """An HTTP request has been answered."""
        self.requests.labels(route, str(status)).inc()
        self.request_seconds.labels(route).observe(seconds)

    def outcome(self, task: str, outcome: str) -> None:
        """A question was refused, or the model failed on it."""
        self.questions.labels(task, outcome).inc()

    def batch(self, questions: Sequence[Question], tokens: int, seconds: float) -> None:
        """The model has answered a batch."""
        self.batch_seconds.observe(seconds)
        self.batch_questions.observe(len(questions))
        self.batch_tokens.observe(tokens)
        now = time.monotonic()
        for question in questions:
            self.questions.labels(question.request.task, "answered").inc()
            self.question_seconds.labels(question.request.task).observe(now - question.ticket.since)

    def forget(self, task: str) -> None:
        """A task is gone."""
        self.question_seconds.remove_by_labels({"task": task})
        self.questions.remove_by_labels({"task": task})

    def text(self) -> bytes:
        """Everything, in Prometheus's own format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
