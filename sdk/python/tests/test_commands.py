"""Commands: exit codes, output and input."""

from __future__ import annotations

import hashlib
import threading

import pytest
from daemon import eventually

from burrow_sandbox import Client, CommandError, ExecEndedError, NotExecutableError, NotFoundError, Sandbox


def test_a_command_tells_its_exit_code_and_both_streams(shared: Sandbox) -> None:
    result = shared.run("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.ok
    assert result.exec.outcome is not None
    assert result.exec.outcome.wall_us > 0


def test_a_list_is_a_program_and_its_arguments(shared: Sandbox) -> None:
    assert shared.run(["echo", "$HOME", "a  b"]).stdout == "$HOME a  b\n"


def test_environment_directory_user_and_input(shared: Sandbox) -> None:
    result = shared.run(
        "echo $GREETING; pwd; id -un; cat", env={"GREETING": "hi"}, workdir="/tmp", user="user", input="in\n"
    )
    assert result.stdout == "hi\n/tmp\nuser\nin\n"


def test_a_timeout_ends_the_command_with_124(shared: Sandbox) -> None:
    result = shared.run("sleep 1000", timeout=0.2)
    assert (result.exit_code, result.timed_out) == (124, True)


def test_a_signal_is_128_and_its_number(shared: Sandbox) -> None:
    assert shared.run("kill -TERM $$").exit_code == 143


def test_check_raises_with_what_was_said(shared: Sandbox) -> None:
    with pytest.raises(CommandError, match=r"`echo oops >&2; false` exited with 1: oops") as caught:
        shared.run("echo oops >&2; false", check=True)
    assert caught.value.result.stderr == "oops\n"
    assert shared.run("true", check=True).ok


def test_a_program_that_is_not_there_is_an_error_of_its_own(shared: Sandbox) -> None:
    with pytest.raises(NotExecutableError, match="no-such-program"):
        shared.run(["no-such-program"])


def test_ten_mebibytes_come_whole(shared: Sandbox) -> None:
    script = "import sys\nfor i in range(10 << 10): sys.stdout.write(f'{i:>1023}\\n')"
    result = shared.run(["python3", "-c", script])
    expected = "".join(f"{i:>1023}\n" for i in range(10 << 10))
    assert len(result.stdout) == 10 << 20
    assert hashlib.sha256(result.stdout.encode()).digest() == hashlib.sha256(expected.encode()).digest()
    assert not result.truncated


def test_characters_are_never_cut_in_two(shared: Sandbox) -> None:
    script = "import os,time\nfor byte in 'äß€𝄞'.encode(): os.write(1, bytes([byte])); time.sleep(0.002)"
    heard: list[str] = []
    result = shared.run(["python3", "-c", script], on_stdout=heard.append)
    assert result.stdout == "".join(heard) == "äß€𝄞"
    assert shared.run(r"printf '\377'").stdout == "\N{REPLACEMENT CHARACTER}"


def test_callbacks_hear_it_while_the_command_runs(shared: Sandbox) -> None:
    # The command continues only after the callback was called.
    heard: list[str] = []

    def on_stdout(text: str) -> None:
        heard.append(text)
        if "ready" in text:
            shared.files.write("/tmp/go-on", "")

    result = shared.run(
        "rm -f /tmp/go-on; echo ready; while [ ! -e /tmp/go-on ]; do sleep 0.01; done; echo done >&2",
        on_stdout=on_stdout,
        on_stderr=heard.append,
        timeout=180,
    )
    assert result.ok
    assert heard == ["ready\n", "done\n"]


def test_a_failing_command_leaves_no_trace_when_asked_to(sandbox: Sandbox) -> None:
    result = sandbox.run("touch /srv/trace; exit 5", rollback_on_failure=True)
    assert result.exit_code == 5
    assert result.exec.rollback is not None
    assert result.exec.rollback.state == "done"
    assert not sandbox.files.exists("/srv/trace")


def test_a_stream_gives_pieces_in_order(shared: Sandbox) -> None:
    process = shared.stream("for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    pieces = list(process)
    # The order within each stream is guaranteed, the order between streams is not.
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        text = "".join(piece.text for piece in pieces if piece.stream == stream)
        assert text == f"{word} 1\n{word} 2\n{word} 3\n"
    ends = [piece.offset + len(piece.data) for piece in pieces]
    assert [piece.offset for piece in pieces] == [0, *ends[:-1]]
    assert process.exit_code == 0


def test_a_background_process_takes_input_and_tells_its_end(shared: Sandbox) -> None:
    process = shared.spawn("cat", stdin=True)
    assert process.exit_code is None
    process.write("one\n")
    process.write(b"two\n", close=True)
    result = process.wait()
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")
    with pytest.raises(ExecEndedError):
        process.write("too late")


def test_a_process_is_found_again_by_its_id(shared: Sandbox, client: Client) -> None:
    process = shared.spawn("echo before; sleep 1000")
    elsewhere = Sandbox.connect("shared", client=client).process(process.id)
    stream = elsewhere.output()
    assert next(stream).text == "before\n"
    assert stream.offset == len("before\n")
    stream.close()
    assert process.id in [known.id for known in shared.processes()]
    assert process.wait_exit(timeout=0.05) is None
    process.signal("TERM")
    assert process.wait_exit(timeout=180) == 143
    assert elsewhere.refresh().state == "ended"
    assert process.kill() is False
    with pytest.raises(NotFoundError):
        shared.process("exec00000000000000000")


def test_a_with_block_ends_the_process(shared: Sandbox) -> None:
    with shared.spawn("sleep 1000") as process:
        assert process.exec.state == "running"
    assert process.wait_exit(timeout=180) == 137


def test_what_nobody_read_is_told_as_skipped(shared: Sandbox) -> None:
    process = shared.spawn("head -c 100000 /dev/zero | tr '\\0' x; echo end", ring_bytes=4096)
    assert process.wait_exit(timeout=180) == 0
    result = process.wait()
    assert result.truncated
    assert result.stdout.endswith("xend\n")
    first = next(process.output())
    assert first.skipped == first.offset == 100004 - len(result.stdout)


def test_a_terminal_has_a_size_and_takes_keys(shared: Sandbox) -> None:
    terminal = shared.pty("while read -r line; do stty size; done", columns=90, rows=20)
    shown: list[str] = []
    reader = threading.Thread(target=lambda: shown.extend(piece.text for piece in terminal), daemon=True)
    reader.start()
    terminal.write("\n")
    eventually("the first size", lambda: "20 90" in "".join(shown))
    terminal.resize(columns=132, rows=43)
    terminal.write("\n")
    eventually("the new size", lambda: "43 132" in "".join(shown))
    terminal.write("\x04")
    assert terminal.wait_exit(timeout=180) == 0
    reader.join(180)
    assert not reader.is_alive()


def test_a_shell_in_a_terminal(shared: Sandbox) -> None:
    terminal = shared.pty(user="user")
    terminal.write("echo $((40 + 2)) is the answer; exit\n")
    assert "42 is the answer" in terminal.wait().stdout
