"""Uploads of exports, with a small server in the hub's place that speaks what the hub's library asks of it."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.export import main
from pipeline.export.hub import push, require_hub
from pipeline.files import storage
from pipeline.saved.checkpoints import CARD
from tests.refusals import refusal

constants = pytest.importorskip("huggingface_hub.constants")

TOKEN, READ_ONLY, UNKNOWN = "hf_may_write", "hf_may_read", "hf_nobody_knows"
LARGE = ".safetensors"


class Answers(BaseHTTPRequestHandler):
    """One repository, me/tiny, whose large files come by git-lfs and whose others come in the commit."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server: Any = self.server
        server.asked.append((self.path, body))
        token = self.headers["Authorization"]
        if token != f"Bearer {TOKEN}":
            status = 403 if token == f"Bearer {READ_ONLY}" else 401
            return self.answer(status, {"error": f"{token} is refused"})
        if self.path == "/api/repos/create":
            return self.answer(200, {"url": f"{server.address}/me/tiny", "id": "1", "name": "me/tiny"})
        if self.path == "/api/validate-yaml":
            header = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            return self.answer(200, {"warnings": [], "errors": []} if header["license"] else {})
        if self.path == "/api/models/me/tiny/preupload/main":
            modes = {
                file["path"]: "lfs" if file["path"].endswith(LARGE) else "regular" for file in json.loads(body)["files"]
            }
            files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
            return self.answer(200, {"files": files})
        if self.path == "/me/tiny.git/info/lfs/objects/batch":
            objects = [
                one | {"actions": {"upload": {"href": f"{server.address}/large/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self.answer(200, {"transfer": "basic", "objects": objects})
        assert self.path == "/api/models/me/tiny/commit/main", self.path
        self.take(body)
        return self.answer(200, {"commitUrl": f"{server.address}/me/tiny/commit/abc", "commitOid": "abc"})

    def do_PUT(self) -> None:
        server: Any = self.server
        content = self.rfile.read(int(self.headers["Content-Length"]))
        server.large[hashlib.sha256(content).hexdigest()] = content
        self.answer(200, {})

    def take(self, body: bytes) -> None:
        """Keep the files of a commit."""
        server: Any = self.server
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                server.files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                server.files[value["path"]] = server.large[value["oid"]]

    def answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.files, server.large, server.asked = {}, {}, []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | None], None]:
    """Give the hub's library another address, which it reads when it is imported, and another token."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)

    def use(address: str, token: str | None) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        if token:
            monkeypatch.setenv("HF_TOKEN", token)

    return use


def upload(folder: Path) -> str:
    """Upload a folder as an export does."""
    require_hub("me/tiny")
    return push(str(folder), "me/tiny", private=False)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder as an export is published, small."""
    made = tmp_path / "made"
    made.mkdir()
    (made / CARD).write_text("---\nlicense: mit\n---\n")
    storage.publish(made, str(tmp_path / "published"), {"checkpoint": "/home/me/runs/tiny/checkpoints/step-00000003"})
    return tmp_path / "published"


def test_an_export_comes_over_byte_for_byte(
    tiny_run: Path, tmp_path: Path, hub: Any, use: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    use(hub.address, TOKEN)
    words = [str(tiny_run), "--folder", str(tmp_path / "out"), "--license", "Apache-2.0"]
    assert main([*words, "--push-to-hub", "me/tiny", "--private"]) == 0
    said = capsys.readouterr()
    target = tmp_path / "out" / "huggingface"
    assert said.out.splitlines()[1:] == [f"huggingface: pushed to {hub.address}/me/tiny"]
    here = {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    manifest, other = json.loads(here.pop("manifest.json")), json.loads(hub.files.pop("manifest.json"))
    assert hub.files == here and {"1_Pooling/config.json", "model.safetensors", CARD} <= here.keys()
    assert list(hub.large.values()) == [here["model.safetensors"]]
    assert manifest["checkpoint"].startswith("/") and other == manifest | {"checkpoint": "step-00000003"}
    (created,) = [json.loads(body) for path, body in hub.asked if path == "/api/repos/create"]
    assert (created["organization"], created["name"], created["visibility"]) == ("me", "tiny", "private")
    card = hub.files[CARD].decode()
    assert "license: apache-2.0" in card and 'model="me/tiny"' in card
    assert not [name for name, content in hub.files.items() if str(tiny_run.parents[1]).encode() in content]
    assert TOKEN not in said.out + said.err


REFUSED = {
    READ_ONLY: (
        "the token has no write access to this repository: use another token, or a repository of your own; set "
        "HF_TOKEN "
    ),
    UNKNOWN: "the hub does not know the token: set HF_TOKEN to a token with write access (huggingface.co/",
}


def test_a_token_that_the_hub_refuses_is_one_line_without_it(published: Path, hub: Any, use: Callable) -> None:
    for token, words in REFUSED.items():
        use(hub.address, token)
        said = refusal(upload, published)
        assert said.startswith(f"push_to_hub (me/tiny): {words}") and said.endswith(f"; the export is in {published}")
        assert "\n" not in said and token not in said
    assert not hub.files


def test_without_a_token_and_without_the_hub_it_says_so(published: Path, use: Callable) -> None:
    nowhere = "http://127.0.0.1:9"
    use(nowhere, None)
    words = "push_to_hub (me/tiny) needs a token: set HF_TOKEN to a token with write access "
    assert refusal(upload, published).startswith(words)
    use(nowhere, TOKEN)
    said = refusal(upload, published)
    assert said.startswith(f"push_to_hub (me/tiny): {nowhere} cannot be reached (")
    assert "\n" not in said and TOKEN not in said
