"""The tests; their folders mirror the package's."""

import pytest

# Suites that other test modules subclass: their asserts shall explain themselves too.
pytest.register_assert_rewrite("tests.bus.contract", "tests.pulse.contract")
