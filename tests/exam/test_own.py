import pytest

from relnet import exam
from relnet.tasks import Copying


def written(tmp_path, text):
    path = tmp_path / "strings.txt"
    path.write_text(text)
    return exam.OwnItems(Copying(length=4), path)


def test_each_line_is_a_string(tmp_path):
    own = written(tmp_path, "hello\n\n  world \r\nab\n")
    assert own.lengths == {2: 1, 5: 2}
    assert [own.decode(ids) for ids in own.items(2, 5, seed=0).answers] == ["hello<EOS>", "world<EOS>"]


@pytest.mark.parametrize("line", ["hello you", "héllo", "a1"])
def test_a_line_that_is_no_string_is_refused_by_its_number(tmp_path, line):
    with pytest.raises(ValueError, match=r"strings\.txt, line 3: '.*only the letters a to z"):
        written(tmp_path, f"hello\n\n{line}\nworld\n")


def test_a_file_of_empty_lines_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no string; write one a line"):
        written(tmp_path, "\n \n")


def test_known_results_go_by_the_strings_not_by_where_they_lie(tmp_path):
    told = []
    for folder, content in (("one", "abc\nde\n"), ("same", "abc\nde"), ("other", "abc\ndf\n")):
        (tmp_path / folder).mkdir()
        told.append(repr(written(tmp_path / folder, content)))
    assert told[0] == told[1] != told[2]
