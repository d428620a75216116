import json
import os
import signal
import subprocess
import sys
import textwrap

import datasets
import numpy as np
import pytest

from relnet.tasks import Text, text_sources
from relnet.tasks.text_sources import PIECE, FileSource, open_sources
from relnet.tasks.text_tokens import ByteTokens
from relnet.tasks.token_store import AT_ONCE, RECORD, TokenStore, prepare, store_folder

# Lines, a line longer than a piece, characters of 1 to 4 bytes: some 160 pieces, so several are prepared at once and the last is short.
TEXT = ("a line of text\n" * 40_000 + "no line end é€𝄞" * 100_000 + "\nthe end").encode()


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes(TEXT)
    return path


def prepare_file(path, on_progress=None):
    return store_folder(prepare(open_sources([str(path)]), ByteTokens(), on_progress))


def contents(folder):
    return {name: (folder / name).read_bytes() for name in ("tokens.bin", "index.bin", "store.json")}


def test_pieces_are_the_text_cut_at_lines_or_whole_characters_from_any_piece_on(path):
    source = FileSource(path)
    pieces = list(source.pieces(0))
    assert b"".join(piece for _, piece in pieces) == TEXT
    assert len(pieces) > 2 * AT_ONCE
    for position, piece in pieces:
        assert 0 < len(piece) <= PIECE
        piece.decode()
        assert TEXT[position - len(piece) : position] == piece
    assert all(piece.endswith(b"\n") for _, piece in pieces[:30])
    for number in (1, 50, len(pieces) - 2):
        assert list(source.pieces(pieces[number][0])) == pieces[number + 1 :]


def test_progress_ends_at_the_whole(path):
    seen = []
    prepare(open_sources([str(path)]), ByteTokens(), lambda *shown: seen.append(shown))
    assert seen[-1] == ("preparing text", len(TEXT), len(TEXT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("left", ["batch", "no batch", "torn record", "torn tokens", "lost tokens", "zeroed tokens"])
def test_what_a_kill_left_is_gone_on_with_to_the_same_bytes(path, data_folder, left, monkeypatch):
    expected = contents(prepare_file(path))
    monkeypatch.setenv("RELNET_DATA", str(data_folder / "second"))

    def cut(what, done, total):
        if what == "preparing text" and left != "no batch":
            raise PowerCut
        if left == "no batch":
            raise PowerCut

    with pytest.raises(PowerCut):
        prepare_file(path, cut)
    (folder,) = (data_folder / "second").iterdir()
    tokens, index = folder / "tokens.bin", folder / "index.bin"
    assert not (folder / "store.json").exists()
    kept = np.frombuffer(index.read_bytes(), RECORD)
    assert len(kept) == AT_ONCE
    if left == "torn record":
        os.truncate(index, 10 * RECORD.itemsize + 5)
    if left == "torn tokens":
        with open(tokens, "ab") as file:
            file.write(b"x" * 1000)
    if left == "lost tokens":
        os.truncate(tokens, int(kept[20]["tokens"]) + 7)
    if left == "zeroed tokens":
        # What a disk may hold after a power cut.
        with open(tokens, "r+b") as file:
            file.seek(int(kept[40]["tokens"]) - 5)
            file.write(bytes(5))
    starts = []
    assert contents(prepare_file(path, lambda what, done, total: starts.append(done))) == expected
    if left in ("batch", "torn tokens"):
        assert starts[0] > kept[-1]["bytes"], "what was done is not done again"


KILLED = """
    import os, signal, sys
    from relnet.tasks import text_sources, token_store, text_tokens
    def cut(what, done, total):
        if done > 500_000:
            os.kill(os.getpid(), signal.SIGKILL)
    token_store.prepare(text_sources.open_sources([sys.argv[1]]), text_tokens.ByteTokens(), cut)
"""


def run_python(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_killed_process_leaves_a_store_that_the_next_one_finishes(path):
    killed = run_python(KILLED, path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert bytes(TokenStore(prepare_file(path)).tokens) == TEXT


NO_ROOM = """
    import resource, sys
    from relnet.tasks import text_sources, token_store, text_tokens
    sources = text_sources.open_sources([sys.argv[1]])
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        token_store.prepare(sources, text_tokens.ByteTokens())
    except OSError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("text", "room", "file"),
    [(TEXT, 1_500_000, "tokens.bin"), (TEXT[:200], 100, "tokens.bin"), (TEXT[:60], 100, "store.json.tmp")],
)
def test_without_room_the_file_is_named_and_what_is_written_stays_good(path, text, room, file):
    path.write_bytes(text)
    done = run_python(NO_ROOM, path, room)
    assert done.returncode == 0, done.stderr
    assert file in done.stdout
    assert "make room, then go on with the same command" in done.stdout
    assert bytes(TokenStore(prepare_file(path)).tokens) == text


def test_two_processes_that_prepare_the_same_make_it_once(path, data_folder):
    command = [sys.executable, "-c", textwrap.dedent(KILLED.replace("done > 500_000", "False")), str(path)]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    (folder,) = data_folder.iterdir()
    assert bytes(TokenStore(folder).tokens) == TEXT


@pytest.mark.parametrize("change", ["written to", "replaced"])
def test_a_file_that_changes_while_it_is_prepared_is_refused_and_leaves_nothing_wrong(path, change):
    """Also where its size stays: the store would keep another text under the name of this one."""
    sources = open_sources([str(path)])
    if change == "written to":
        with open(path, "r+b") as file:
            file.write(b"A")
    else:
        other = path.with_name("other")
        other.write_bytes(TEXT.swapcase())
        other.replace(path)
    with pytest.raises(ValueError, match=r"mine\.txt was changed while it was read; start again"):
        prepare(sources, ByteTokens())
    path.write_bytes(TEXT)
    assert bytes(TokenStore(prepare_file(path)).tokens) == TEXT


BOUNDED = """
    import re, resource, sys
    from relnet.tasks import Text
    def anonymous():
        return int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
    Text((sys.argv[2],), context=8).prepared().sample(2, seed=0, index=0)
    limit = anonymous() + int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    task = Text((sys.argv[1],)).prepared()
    print(task.sample(64, seed=0, index=0).inputs.sum().item(), len(task.training.tokens))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts anonymous memory against RLIMIT_DATA")
def test_preparing_and_sampling_hold_no_more_than_a_part_of_the_text_in_memory(tmp_path):
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text("a few words to begin with\n" * 9)
    with open(large, "wb") as file:
        for _ in range(96):
            file.write(b"0123456789abcde\n" * 2**16)
    done = run_python(BOUNDED, large, small, 24 * 2**20)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) == round(96 * 2**20 * 0.95)
    hog = BOUNDED.replace("task =", "hog = open(sys.argv[1], 'rb').read(); task =")
    assert run_python(hog, large, small, 24 * 2**20).returncode != 0, "the bound bounds"


@pytest.mark.parametrize("name", ["tokens.bin", "index.bin", "store.json"])
@pytest.mark.parametrize("fault", ["changed", "cut short", "gone"])
def test_a_damaged_store_is_found_out(path, name, fault):
    folder = prepare_file(path)
    content = bytearray((folder / name).read_bytes())
    if fault == "changed":
        content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content[: len(content) if fault == "changed" else len(content) - 40])
    if fault == "gone":
        (folder / name).unlink()
    if (name, fault) == ("store.json", "changed"):
        content[:] = content.replace(b'"version": 1', b'"version": 9')
        (folder / name).write_bytes(content.replace(b"relnet-tokens", b"relnet-tokens"))
    with pytest.raises(ValueError, match=r"damaged|reads relnet-tokens version 1|no finished text"):
        TokenStore(folder)


def test_a_store_that_is_no_text_is_damaged(path):
    folder = prepare_file(path)
    (folder / "store.json").write_bytes(b'{"format": "\xff"}')
    with pytest.raises(ValueError, match="is damaged"):
        TokenStore(folder)


def test_a_store_of_another_version_is_refused(path):
    folder = prepare_file(path)
    content = json.loads((folder / "store.json").read_bytes())
    (folder / "store.json").write_text(json.dumps({**content, "version": 2}))
    with pytest.raises(ValueError, match="version 2, this relnet reads relnet-tokens version 1"):
        TokenStore(folder)


def test_what_is_there_already_is_taken_and_what_is_not_ours_is_left_alone(path):
    folder = prepare_file(path)
    times = {name: (folder / name).stat().st_mtime_ns for name in contents(folder)}
    assert prepare_file(path) == folder
    assert {name: (folder / name).stat().st_mtime_ns for name in contents(folder)} == times
    (folder / "thesis.doc").write_text("mine")
    with pytest.raises(ValueError, match=r"holds thesis\.doc, which is not ours"):
        prepare_file(path)
    assert (folder / "thesis.doc").read_text() == "mine"


def fake_hub(monkeypatch, rows):
    asked = []

    def stream(path, config, split):
        asked.append((path, config, split))
        return datasets.Dataset.from_dict(rows).to_iterable_dataset()

    monkeypatch.setattr(text_sources, "stream", stream)
    return asked


def test_a_hub_data_set_is_streamed_row_by_row_and_resumed_by_row(monkeypatch, data_folder):
    rows = [f" line {number} of many words\n" if number % 3 else "" for number in range(40_000)]
    expected = "".join(row if row.endswith("\n") else row + "\n" for row in rows).encode()
    asked = fake_hub(monkeypatch, {"text": rows})

    def cut(what, done, total):
        assert total is None
        raise PowerCut

    task = Text(("wikitext-103",), validation="hub:someone/texts:german:test")
    with pytest.raises(PowerCut):
        task.prepared(cut)
    done = []
    task = task.prepared(lambda what, bytes_done, total: done.append(bytes_done))
    assert done[0] > AT_ONCE * PIECE or len(expected) < AT_ONCE * PIECE
    assert bytes(task.training.tokens) == bytes(task.validating.tokens) == expected
    assert asked[0] == ("Salesforce/wikitext", "wikitext-103-raw-v1", "train")
    assert asked[-1] == ("someone/texts", "german", "test")


def test_a_hub_data_set_without_text_is_refused(monkeypatch):
    fake_hub(monkeypatch, {"label": [1, 2]})
    with pytest.raises(ValueError, match=r'hub:a/b, row 0: no column "text"'):
        Text(("hub:a/b",)).prepared()
    with pytest.raises(ValueError, match="hub:OWNER/NAME"):
        Text(("hub:",)).prepared()


def test_without_a_network_the_way_out_is_named(monkeypatch):
    def unreachable(*arguments, **options):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(OSError, match=r"Salesforce/wikitext cannot be had .* give a text file"):
        Text(("wikitext-103",)).prepared()
