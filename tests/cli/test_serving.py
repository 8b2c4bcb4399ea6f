"""A deployment in one terminal, driven from another: commands, exit codes, and what a signal leaves behind."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from elasticfsm.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line in this process; returns exit code and what was printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["elasticfsm", *arguments])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def serving(tmp_path_factory):
    """`elasticfsm serve` with one engine, in a directory; killed with all engines if the test leaves it running."""
    directory = tmp_path_factory.mktemp("d")
    options = ["--size", "1", "--slots", "16", "--largest", "3", "--directory", str(directory), "--logs", "json"]
    with subprocess.Popen(
        [sys.executable, "-m", "elasticfsm", "serve", *options, "--keep", "1", "--grace", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            end = time.monotonic() + 60
            while not (directory / "service.json").exists():
                assert process.poll() is None, process.stdout.read()
                assert time.monotonic() < end
                time.sleep(0.02)
            yield process, directory
        finally:
            process.kill()


def engines(directory):
    standing = json.loads((directory / "deployment.json").read_text())
    return list(standing["processes"].values())


def test_another_terminal_asks_scales_and_cancels_and_sigterm_ends_everything_in_order(serving, command):
    process, directory = serving
    place = ["--directory", str(directory)]
    pids = engines(directory)
    code, said = command("status", *place)
    assert (code, "1 engines serve" in said) == (0, True)
    code, said = command("scale", "9", *place)
    assert (code, "valid sizes: 1 to 3" in said) == (2, True), said
    code, said = command("scale", "2", "--dry-run", *place)
    assert (code, json.loads(said)["engines_to_add"]) == (0, 1)
    assert command("cancel", *place) == (2, "elasticfsm: no operation runs\n")
    code, said = command("scale", "2", "--no-wait", "--operation", "op-a", *place)
    assert (code, said.startswith("op-a to 2: preparing")) == (0, True), said
    code, said = command("scale", "3", *place)
    assert (code, "op-a" in said) == (2, True)
    code, said = command("cancel", *place)
    assert (code, "op-a to 2: aborted (aborted): cancelled by the operator" in said) == (0, True), said
    code, said = command("status", "--json", *place)
    seen = json.loads(said)
    assert (seen["phase"], seen["safe_to_delete"], seen["members"]) == ("aborted", ["e1"], ["e0"])
    assert command("serve", *place)[0] == 2  # one coordinator in a directory

    code, said = command("scale", "2", "--no-wait", "--operation", "op-b", *place)
    assert code == 0
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    lines = [json.loads(line) for line in said.splitlines()]
    ends = {line["operation"]: line["phase"] for line in lines if line.get("phase") and "operation" in line}
    assert ends == {"op-a": "aborted", "op-b": "aborted"}
    assert any("op-b: aborted" in line["message"] for line in lines)  # nothing is handed over silently
    assert [line for line in lines if line["level"] == "warning"] == []  # it is an ordinary end
    assert not any(line["message"] == "asks to be removed" for line in lines)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert sorted(path.name for path in directory.iterdir()) == [
        "coordinator.lock",
        "journal",
        "operation.json",
        "operations.jsonl",
    ]
    code, said = command("status", *place)
    assert (code, "no deployment is served from" in said) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--resume", "{}", "--model", "x"], "leave --model"),
        (["serve", "--resume", "{}", "--size", "2", "--no-launch"], "leave --size, --launch out"),
        (["serve", "--resume", "{}", "--grace", "5", "--http", "127.0.0.1:0"], "no deployment is recorded"),
        (["serve", "--resume", "{}"], "no deployment is recorded"),
        (["serve", "--size", "1", "--slots", "2", "--directory", "{}"], "too small"),
        (["serve", "--logs", "xml", "--directory", "{}"], "--logs xml"),
        (["serve", "--size", "2", "--engine", "a", "--directory", "{}"], "expected 2"),
        (["scale", "2", "--directory", "{}"], "no deployment is served from"),
        (["scale", "2", "--url", "http://127.0.0.1:1"], "does not answer"),
        (["scale", "2", "--drain-timeout", "5", "--directory", "{}"], "--drain-timeout is for --drain"),
        (["cancel", "--directory", "{}"], "no deployment is served from"),
        (["status", "--url", "here"], "expected http://HOST:PORT"),
        (["status", "--url", "http://[::1"], "expected http://HOST:PORT"),
        (["scale", "2", "--url", "ftp://127.0.0.1"], "expected http://HOST:PORT"),
        (["cancel", "--url", "http://127.0.0.1:port"], "expected http://HOST:PORT"),
        (["serve", "--operation", "../a", "--directory", "{}"], "operation '../a': expected"),
        (["serve", "--size", "1", "--slots", "16", "--engine", "a/b", "--directory", "{}"], "engine 'a/b': expected"),
        (["engine", "--join", "ipc://{}/hub", "--operation", "a", "--engine-id", "a/b"], "engine 'a/b': expected"),
        (["engine", "--join", "ipc://{}/hub", "--operation", "a", "--engine-id", "coordinator"], "the coordinator"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(command, tmp_path, arguments, said):
    code, text = command(*(each.format(tmp_path) for each in arguments))
    assert (code, said in text, "Traceback" in text) == (2, True, False), text
    assert "starting" not in text and "taking over" not in text


def test_a_port_that_cannot_be_had_is_refused_before_an_engine_starts(command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, text = command("serve", "--http", address, "--directory", str(tmp_path))
    assert (code, text) == (2, f"elasticfsm: cannot listen on {address}: Address already in use; choose another port\n")
    code, text = command("serve", "--http", "127.0.0.1:99999", "--directory", str(tmp_path))
    assert (code, "expected HOST:PORT" in text, "starting" in text) == (2, True, False)
    assert list(tmp_path.iterdir()) == []


class Dying(BaseHTTPRequestHandler):
    """A coordinator that begins an operation, and answers a few questions before it is gone."""

    answers: ClassVar[list[object]] = []

    def do_POST(self):
        self.do_GET()

    def do_GET(self):
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:  # cut off
            self.close_connection = True
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def dying(command):
    """Run a command against a coordinator that gives these answers, and no more."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dying)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(answers, *arguments):
        Dying.answers[:] = answers
        return command(*arguments, "--url", f"http://127.0.0.1:{server.server_port}")

    yield run
    server.shutdown()
    server.server_close()


BEGUN = {"operation_id": "op-x", "requested_size": 3, "phase": "preparing", "detail": "building"}
NEXT = BEGUN | {"operation_id": "op-y"}


def seen(operation, **ended):
    return {"engines": {}, "operation_id": operation["operation_id"], "operation": operation, "ended_operations": ended}


@pytest.mark.parametrize("begin", [("scale", "3", "--operation", "op-x"), ("cancel", "--operation", "op-x")])
def test_what_became_of_a_request_whose_answer_never_came_is_unknown_and_exit_code_3_says_how_to_learn_it(dying, begin):
    for answers in ([], [{"operation": BEGUN}], [{"operation": BEGUN}, seen(BEGUN)]):
        code, text = dying(answers, *begin)
        assert (code, "Traceback" in text) == (3, False), text
        assert "unknown" in text and "serve --resume" in text and "scale SIZE --operation op-x" in text
    code, text = dying([{"operation": BEGUN}, seen(NEXT)], *begin)
    assert (code, "does not know operation op-x" in text) == (3, True), text


def test_an_operation_that_ended_while_the_next_one_began_is_told_as_it_ended(dying):
    for phase, code in (("completed", 0), ("aborted", 1)):
        ended = {"op-x": {"phase": phase, "error": ""}}
        answers = [{"operation": BEGUN}, seen(BEGUN), seen(NEXT, **ended)]
        assert dying(answers, "scale", "3")[0] == code
        answers = [{"operation": BEGUN}, seen(BEGUN), seen(NEXT, **ended)]
        assert dying(answers, "cancel")[0] == 1 - code
    assert dying([], "scale", "3", "--dry-run")[0] == 2  # which changes nothing anyway


def test_what_answers_and_is_no_deployment_is_refused_in_one_line(command):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self):
            self.do_GET()

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        said = [command(*each, "--url", url) for each in (["status"], ["scale", "2"], ["cancel"])]
        server.shutdown()
    assert [(code, "Traceback" in text) for code, text in said] == [(2, False)] * 3, said
    assert "is no deployment of ours" in said[0][1]


def test_a_directory_that_others_may_write_to_is_refused(command, tmp_path):
    tmp_path.chmod(0o777)
    code, text = command("serve", "--directory", str(tmp_path))
    assert (code, "others may write" in text) == (2, True)
    assert list(tmp_path.iterdir()) == []
