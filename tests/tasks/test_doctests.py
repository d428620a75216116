import doctest

import pytest

from relnet.tasks import copying, scores, text, text_tokens


@pytest.mark.parametrize("module", [copying, scores, text, text_tokens], ids=lambda module: module.__name__)
def test_the_examples_in_the_documentation_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
