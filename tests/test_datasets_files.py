"""A dataset's file is found, or downloaded whole and right, or an error says what to do; never half of it."""

import contextlib
import hashlib
import http.server
import io
import os
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from collabnets.datasets import DatasetFileError, files
from collabnets.datasets.files import DataFile, cache_folder, find, find_local

CONTENT = b"".join(b"maker,model%d,%d,2,3,4,5,6,7,8\n" % (i, i) for i in range(5000))
PAGE = "https://example.org/data"


def data_file(*urls, content=CONTENT):
    return DataFile("machine.data", PAGE, hashlib.sha256(content).hexdigest(), len(content), urls)


def zipped(content=CONTENT, name="folder/machine.data"):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("readme.txt", "words")
        opened.writestr(name, content)
    return archive.getvalue()


class Answer(http.server.BaseHTTPRequestHandler):
    """Serves what the server's table has under a path: a status, a body, and how many bytes it claims to be."""

    def do_GET(self):
        self.server.asked.append(self.path)
        status, body, length, delay = self.server.table[self.path]
        time.sleep(delay)
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the one who asked has gone
            self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as running:
        running.table, running.asked = {}, []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def serve(path, body, *, status=200, length="right", delay=0.0):
            running.table[path] = (status, body, len(body) if length == "right" else length, delay)
            return f"http://127.0.0.1:{running.server_port}{path}"

        serve.asked = running.asked
        yield serve
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """An empty cache, and no data folder."""
    monkeypatch.delenv("COLLABNETS_DATA", raising=False)
    monkeypatch.setenv("COLLABNETS_CACHE", str(tmp_path / "cache"))


def in_cache():
    cache = cache_folder()
    return sorted(path.name for path in cache.rglob("*")) if cache.exists() else []


# ------------------------------------------------------------------------------------------------- what is found
def test_a_download_is_kept_and_found_again_without_the_network(server, capfd):
    file = data_file(server("/machine.data", CONTENT))
    assert find_local(file) is None
    path = find(file)
    assert path == cache_folder() / "machine.data"
    assert path.read_bytes() == CONTENT
    assert in_cache() == ["machine.data"]
    assert find(file) == find(file, download=False) == find_local(file) == path
    assert server.asked == ["/machine.data"]
    assert capfd.readouterr() == ("", "")  # no bar where there is no terminal


def test_a_download_without_a_stated_length(server):
    assert find(data_file(server("/machine.data", CONTENT, length=None))).read_bytes() == CONTENT


def test_a_file_inside_an_archive(server):
    assert find(data_file(server("/all.zip", zipped()))).read_bytes() == CONTENT
    assert in_cache() == ["machine.data"]


def test_the_next_address_is_tried(server):
    gone = server("/gone.zip", b"gone", status=404)
    assert find(data_file(gone, server("/machine.data", CONTENT))).read_bytes() == CONTENT
    assert server.asked == ["/gone.zip", "/machine.data"]


def test_the_data_folder_goes_before_the_cache(server, tmp_path, monkeypatch):
    file = data_file(server("/machine.data", CONTENT))
    find(file)
    mine = tmp_path / "mine"
    mine.mkdir()
    monkeypatch.setenv("COLLABNETS_DATA", str(mine))
    assert find(file) == cache_folder() / "machine.data"
    (mine / "machine.data").write_bytes(CONTENT)
    assert find(file) == mine / "machine.data"


def test_a_damaged_file_in_the_cache_is_replaced(server):
    file = data_file(server("/machine.data", CONTENT))
    cache_folder().mkdir()
    (cache_folder() / "machine.data").write_bytes(CONTENT[:-1])
    assert find_local(file) is None
    with pytest.raises(DatasetFileError, match="download=False"):
        find(file, download=False)
    assert find(file).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("platform", "variable", "value", "expected"),
    [
        ("linux", "COLLABNETS_CACHE", "/c", "/c"),
        ("linux", "XDG_CACHE_HOME", "/x", "/x/collabnets"),
        ("linux", "HOME", "/h", "/h/.cache/collabnets"),
        ("darwin", "HOME", "/h", "/h/Library/Caches/collabnets"),
        ("win32", "LOCALAPPDATA", "/l", "/l/collabnets"),
    ],
)
def test_cache_folder(monkeypatch, platform, variable, value, expected):
    for name in ("COLLABNETS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(files.sys, "platform", platform)
    monkeypatch.setenv(variable, value)
    assert cache_folder() == Path(expected)


# ------------------------------------------------------------------------------------------- what can go wrong
def damaged(part):
    """An archive whose compressed bytes, or the checksum beside them, are not what they were."""
    content = bytearray(zipped())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as opened:
        info = opened.getinfo(next(name for name in opened.namelist() if name.endswith("machine.data")))
    if part == "stream":
        start = info.header_offset + 30 + len(info.filename)
        content[start : start + info.compress_size] = b"\xff" * info.compress_size
    else:
        at = content.index(info.CRC.to_bytes(4, "little"), content.index(b"PK\x01\x02"))
        content[at] ^= 0xFF
    return bytes(content)


HTML = b"\n <!DOCTYPE html><html><body>Please log in</body></html>" + b" " * len(CONTENT)
WRONG = {
    "another version": (lambda serve: serve("/machine.data", CONTENT[:-2] + b"9\n"), r"sha256 is \w{64}, not \w{64}"),
    "truncated, with a stated length": (
        lambda serve: serve("/machine.data", CONTENT[:3000], length=len(CONTENT)),
        f"broke off after 3,000 of {len(CONTENT):,} bytes",
    ),
    "truncated, without a stated length": (
        lambda serve: serve("/machine.data", CONTENT[:3000], length=None),
        f"only 3,000 of {len(CONTENT):,} bytes.*cut off",
    ),
    "empty": (lambda serve: serve("/machine.data", b""), "it is empty"),
    "a web page": (lambda serve: serve("/machine.data", HTML), "web page"),
    "an error of the server": (lambda serve: serve("/machine.data", b"sorry", status=503), "HTTP Error 503"),
    "a slow server": (lambda serve: serve("/machine.data", CONTENT, delay=0.5), "timed out"),
    "a web page for an archive": (lambda serve: serve("/all.zip", HTML), "not a zip archive: it is a web page"),
    "a truncated archive": (lambda serve: serve("/all.zip", zipped()[:-100], length=None), "not a zip archive"),
    "an archive with a damaged stream": (lambda serve: serve("/all.zip", damaged("stream")), "archive .* is damaged"),
    "an archive with a damaged checksum": (lambda serve: serve("/all.zip", damaged("crc")), "archive .* is damaged"),
    "an archive without the file": (
        lambda serve: serve("/all.zip", zipped(name="other.data")),
        "no machine.data, only readme.txt, other.data",
    ),
    "an archive with another version": (lambda serve: serve("/all.zip", zipped(CONTENT + b"more")), "its sha256"),
    "no network": (lambda serve: "http://127.0.0.1:9/machine.data", "refused"),
}


@pytest.mark.parametrize("case", WRONG, ids=WRONG)
def test_a_wrong_download_is_an_error_and_leaves_the_cache_as_it_was(case, server, monkeypatch):
    address, words = WRONG[case]
    file = data_file(address(server))
    with monkeypatch.context() as patch:
        patch.setattr(files, "TIMEOUT", 0.2 if case == "a slow server" else files.TIMEOUT)
        with pytest.raises(DatasetFileError, match=words) as raised:
            find(file)
    text = str(raised.value)
    assert file.urls[0] in text
    assert f"Get machine.data from {PAGE}" in text
    assert f"COLLABNETS_DATA names, or into {cache_folder()}" in text
    assert in_cache() == []
    assert find(replace(file, urls=(server("/right", CONTENT),))).read_bytes() == CONTENT


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ConnectionResetError("reset by peer")])
def test_an_interrupted_download_leaves_the_cache_as_it_was(server, monkeypatch, interruption):
    def blocks(source):
        yield source.read(1000)
        raise interruption

    file = data_file(server("/machine.data", CONTENT))
    cache_folder().mkdir()
    (cache_folder() / "other").write_bytes(b"of another set")
    with monkeypatch.context() as patch:
        patch.setattr(files, "_blocks", blocks)
        with pytest.raises((KeyboardInterrupt, DatasetFileError)):
            find(file)
    assert in_cache() == ["other"]
    assert find(file).read_bytes() == CONTENT


def test_a_file_in_the_data_folder_that_is_not_the_right_one(tmp_path, monkeypatch, server):
    monkeypatch.setenv("COLLABNETS_DATA", str(tmp_path))
    file = data_file(server("/machine.data", CONTENT))
    for content, words in [(CONTENT[:-9], "cut off"), (HTML, "web page"), (b"", "empty"), (CONTENT + b"x", "sha256")]:
        (tmp_path / "machine.data").write_bytes(content)
        with pytest.raises(DatasetFileError, match=words) as raised:
            find(file)
        assert str(tmp_path / "machine.data") in str(raised.value)
        assert PAGE in str(raised.value)
    assert server.asked == []  # it is not silently passed over


def test_a_data_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLABNETS_DATA", str(tmp_path / "mistyped"))
    with pytest.raises(DatasetFileError, match="mistyped, which is not a folder"):
        find(data_file())


def test_a_file_that_cannot_be_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLABNETS_DATA", str(tmp_path))
    with pytest.raises(DatasetFileError, match="cannot be downloaded") as raised:
        find(data_file())
    assert f"put it into {tmp_path} (COLLABNETS_DATA)" in str(raised.value)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, server):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COLLABNETS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DatasetFileError, match=r"cannot be written.*COLLABNETS_CACHE"):
        find(data_file(server("/machine.data", CONTENT)))
    assert server.asked == []


def test_a_read_only_cache(server):
    cache_folder().mkdir(mode=0o500)
    if os.access(cache_folder(), os.W_OK):
        pytest.skip("permissions do not bind this user")
    with pytest.raises(DatasetFileError, match=r"cannot be written.*Permission denied.*COLLABNETS_CACHE"):
        find(data_file(server("/machine.data", CONTENT)))
    assert in_cache() == []
