import doctest

import pytest

from relnet.theory import bounds, capacity, checking, copying_rn, copying_transformer, residual, strings

MODULES = [bounds, capacity, checking, copying_rn, copying_transformer, residual, strings]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_in_the_documentation_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
