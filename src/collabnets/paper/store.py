"""The results of experiments: one JSON line a cell, written as soon as the cell is done, read again by the next run.

A cell is one method on one replication of one experiment. A line that a kill or a full disk cut short is
noticed, said and done again; lines are only ever added, and of two lines of one cell the later one counts.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

FILE = "cells.jsonl"


class Key(NamedTuple):
    """What a cell is.

    Attributes
    ----------
    experiment, method
        Their names.
    replication
        Its number, from 0.
    digest
        Of all settings that decide the result; another digest is another cell.
    """

    experiment: str
    method: str
    replication: int
    digest: str


class Store:
    """The cells of one folder.

    Parameters
    ----------
    folder
        Where ``cells.jsonl`` is; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._cells: dict[Key, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        if not self.path.exists():
            return
        damaged = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                cell = json.loads(line)
                self._cells[Key(cell["experiment"], cell["method"], cell["replication"], cell["digest"])] = cell
            except (ValueError, KeyError, TypeError):
                damaged.append(number)
        if damaged:
            which = f"line {damaged[0]}" if len(damaged) == 1 else f"lines {', '.join(map(str, damaged))}"
            warnings.warn(
                f"{self.path}: {which} cannot be read as a result; what stood there is done again.",
                UserWarning,
                stacklevel=3,
            )

    def get(self, key: Key) -> dict[str, Any] | None:
        """The cell, or None; a cell that failed is one with an ``error``."""
        return self._cells.get(key)

    def done(self, key: Key) -> bool:
        """Whether the cell is there and did not fail."""
        return "error" not in self._cells.get(key, {"error": None})

    def find(self, keys: Iterable[Key]) -> list[dict[str, Any]]:
        """The cells that are there and did not fail."""
        return [self._cells[key] for key in keys if self.done(key)]

    def add(self, key: Key, content: dict[str, Any]) -> None:
        """Append a cell to the file; if that fails the file is as it was before."""
        cell = {**key._asdict(), **content}
        line = json.dumps(cell, allow_nan=False).encode() + b"\n"
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            with open(self.path, "ab") as file:
                if size and not self._ends_in_newline():
                    file.write(b"\n")
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if self.path.exists() and self.path.stat().st_size > size:
                os.truncate(self.path, size)
            raise OSError(
                f"a result could not be written to {self.path} ({error.strerror or error}); all earlier ones are "
                "kept. Make room, or name another folder with --out, and run the same command again."
            ) from error
        self._cells[key] = cell

    def _ends_in_newline(self) -> bool:
        with open(self.path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
