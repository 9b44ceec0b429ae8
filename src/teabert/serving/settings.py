"""How the server listens, batches and limits; secrets come from the environment."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from teabert.config import apply_change
from teabert.settings import Settings, parse

SECRETS = {"api_key": "TEABERT_API_KEY", "admin_token": "TEABERT_ADMIN_TOKEN"}
"""Which environment variables hold them."""
MEGABYTE = 2**20


class ServeSettings(Settings):
    """How the server listens, batches and limits."""

    host: str = "127.0.0.1"
    """Where to listen; 0.0.0.0 lets other machines in."""
    port: int = Field(8000, ge=0, le=65535)
    """0 takes any free port."""
    task: str | None = None
    """The task that /predict answers; not needed where the model has one."""
    workers: int | None = Field(None, ge=0, le=64)
    """Processes that compute on a CPU; by default one for each of its threads, 8 at most; 0: the server computes itself."""
    tokens: int = Field(2048, ge=1)
    """Tokens in a batch of the model: as many as keep a processor busy; a GPU takes more."""
    wait_ms: float = Field(2.0, ge=0, le=1000)
    """A batch begins once all who asked before are back, or none came for so many milliseconds, or ten times that."""
    queue: int = Field(4096, ge=1)
    """Questions (a text under a task) that may wait, all clients together; more are turned away with 429."""
    client_queue: int = Field(1024, ge=1)
    """Questions that one client may have waiting."""
    calls: int = Field(64, ge=1)
    """Requests for attention, and changes of tasks, that may wait."""
    deadline_s: float = Field(10.0, gt=0)
    """Seconds from a request's arrival to its answer; then 504."""
    body_s: float = Field(10.0, gt=0)
    """Seconds in which a request must have arrived as a whole; then 408."""
    max_body: int = Field(2 * MEGABYTE, ge=1)
    """Bytes of a request."""
    max_texts: int = Field(256, ge=1)
    """Texts in a request."""
    max_tasks: int = Field(64, ge=1)
    """Tasks in a request."""
    max_characters: int = Field(20_000, ge=1)
    """Characters of a text."""
    connections: int = Field(1024, ge=1)
    """Open connections; more are turned away with 503."""
    api_key: SecretStr | None = None
    """The key that requests must carry (several with commas between); from TEABERT_API_KEY."""
    admin_token: SecretStr | None = None
    """The token that allows adding and removing tasks; without one nobody may. From TEABERT_ADMIN_TOKEN."""
    task_folder: Path | None = None
    """Where task files lie that may be added by name."""
    max_task_file: int = Field(64 * MEGABYTE, ge=1)
    """Bytes of a task file that is sent."""

    @field_validator(*SECRETS)
    @classmethod
    def _long_enough(cls, given: SecretStr | None, field: ValidationInfo) -> SecretStr | None:
        if given is not None and min(map(len, _parts(given))) < 8:
            raise ValueError(f"a secret needs at least 8 characters; set a longer {SECRETS[str(field.field_name)]}")
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.client_queue > self.queue:
            raise ValueError(f"client_queue {self.client_queue} is more than queue {self.queue}, all clients together")
        return self

    def secrets(self, name: str) -> list[str]:
        """The keys, or the tokens, that are accepted; none where that is off"""
        given: SecretStr | None = getattr(self, name)
        return [] if given is None else _parts(given)


def _parts(secret: SecretStr) -> list[str]:
    return [part.strip() for part in secret.get_secret_value().split(",")]


def serve_settings(given: Mapping[str, Any], changes: Sequence[str] = ()) -> ServeSettings:
    """Settings from what is given (None is not), the secrets of the environment, and `key=value` changes."""
    whole: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    whole |= {name: os.environ[variable] for name, variable in SECRETS.items() if os.environ.get(variable)}
    for change in changes:
        apply_change(whole, change)
    return parse(ServeSettings, whole, "serve")


def describe_settings() -> Iterator[tuple[str, str, str]]:
    """Each setting, its default, what it means."""
    for name, field in ServeSettings.model_fields.items():
        yield name, "" if field.default is None else str(field.default), field.description or ""
