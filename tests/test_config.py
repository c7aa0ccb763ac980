"""Settings: read once, checked, every fault said at once."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from flask_spiderpool.config import PREFIX, Settings, settings_from
from flask_spiderpool.errors import ConfigError


def _faults(config: dict[str, Any], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings_from(config, environ)
    return caught.value.faults


def test_defaults_are_those_of_the_protocol() -> None:
    """Without any key the numbers of PROTOCOL.md hold."""
    settings = settings_from({})
    assert (settings.slice_s, settings.lease_s, settings.renew_s) == (20, 20, 5)
    assert (settings.resend_s, settings.resend_max_s, settings.keeper_s) == (30, 600, 2)
    assert (settings.settle_pages, settings.settle_s, settings.stop_grace_s) == (50, 1, 10)
    assert (settings.attempts, settings.deaths, settings.max_depth, settings.max_pages) == (3, 3, 10, 10_000)


def test_every_default_passes_its_own_check() -> None:
    """A default written out as a key is accepted and unchanged."""
    config = {PREFIX + spec.name.upper(): getattr(Settings(), spec.name) for spec in fields(Settings)}
    assert settings_from(config) == Settings()


def test_every_setting_says_what_it_is() -> None:
    """Each field carries one sentence of documentation."""
    assert all(spec.metadata["doc"].endswith(".") for spec in fields(Settings))


def test_settings_are_frozen() -> None:
    """Nobody changes a setting after it was checked."""
    with pytest.raises(FrozenInstanceError):
        settings_from({}).delay_s = 0.0  # type: ignore[misc]


def test_keys_of_others_are_passed_over() -> None:
    """The host's own keys, and keys that are no text, are none of our business."""
    assert settings_from({"SECRET_KEY": "x", "CELERY": {}, 7: "seven"}) == Settings()  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("SPIDERPOOL_SLICE_S", "2.5", 2.5),
        ("SPIDERPOOL_ATTEMPTS", "4", 4),
        ("SPIDERPOOL_ATTEMPTS", 4.0, 4),
        ("SPIDERPOOL_DELAY_S", 0, 0.0),
        ("SPIDERPOOL_OBEY_ROBOTS", "off", False),
        ("SPIDERPOOL_OBEY_ROBOTS", True, True),
        ("SPIDERPOOL_URL_PREFIX", "/tools/crawl", "/tools/crawl"),
        ("SPIDERPOOL_REDIS_URL", "", None),
        ("SPIDERPOOL_BUS_URL", "database://", "database://"),
        ("SPIDERPOOL_BIND_KEY", "crawl", "crawl"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "127.0.0.1:8000, 10.0.0.0/8", ("127.0.0.1:8000", "10.0.0.0/8")),
        ("SPIDERPOOL_ALLOW_ADDRESSES", ["LocalHost:80"], ("localhost:80",)),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "[::1]:8000,fd00::/8:443", ("[::1]:8000", "fd00::/8:443")),
    ],
)
def test_values_are_parsed(key: str, value: Any, expected: Any) -> None:
    """Text from an environment and Python's own values come to the same."""
    assert getattr(settings_from({key: value}), key.removeprefix(PREFIX).lower()) == expected


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("SPIDERPOOL_ATTEMPTS", "many", "a whole number from 1 to 50"),
        ("SPIDERPOOL_ATTEMPTS", 2.5, "a whole number from 1 to 50"),
        ("SPIDERPOOL_ATTEMPTS", 0, "a whole number from 1 to 50"),
        ("SPIDERPOOL_ATTEMPTS", True, "a whole number from 1 to 50"),
        ("SPIDERPOOL_SLICE_S", float("nan"), "a number from 0.1 to 600"),
        ("SPIDERPOOL_SLICE_S", float("inf"), "a number from 0.1 to 600"),
        ("SPIDERPOOL_MAX_PAGES", float("inf"), "a whole number from 1 to"),
        ("SPIDERPOOL_OBEY_ROBOTS", "perhaps", "true or false"),
        ("SPIDERPOOL_URL_PREFIX", "spiderpool", "a path as /spiderpool"),
        ("SPIDERPOOL_URL_PREFIX", "/spiderpool/", "a path as /spiderpool"),
        ("SPIDERPOOL_AUTH", "open", 'only "none"'),
        ("SPIDERPOOL_LIMITER_URL", "database://", "memory:// or redis://host:port/db"),
        ("SPIDERPOOL_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING or ERROR"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "127.0.0.1", "a list of host:port, CIDR or CIDR:port"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "::1", "a list of host:port, CIDR or CIDR:port"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "127.0.0.1:99999", "a list of host:port, CIDR or CIDR:port"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "10.0.0.0/99", "a list of host:port, CIDR or CIDR:port"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", "10.0.0.0/8:0", "a list of host:port, CIDR or CIDR:port"),
        ("SPIDERPOOL_ALLOW_ADDRESSES", None, "a list of host:port, CIDR or CIDR:port"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(key: str, value: Any, allowed: str) -> None:
    """Whoever reads the error knows what to write instead."""
    [fault] = _faults({key: value})
    assert fault.startswith(f"{key} is {value!r}; allowed is ")
    assert allowed in fault


def test_an_unknown_key_gets_the_nearest_known_one() -> None:
    """A misspelt key is an error with a suggestion."""
    assert _faults({"SPIDERPOOL_SLIC_S": 3}) == [
        "unknown key SPIDERPOOL_SLIC_S, did you mean SPIDERPOOL_SLICE_S?"
    ]


def test_an_unknown_key_like_no_other_gets_no_suggestion() -> None:
    """The common prefix alone does not make two keys alike."""
    assert _faults({"SPIDERPOOL_ZZZZZZZZ": 3}) == ["unknown key SPIDERPOOL_ZZZZZZZZ"]


def test_all_faults_come_at_once() -> None:
    """One start is enough to learn everything that is wrong."""
    faults = _faults({"SPIDERPOOL_ATTEMPTS": 0, "SPIDERPOOL_DEATH": 1, "SPIDERPOOL_AUTH": "all"})
    assert [fault.split()[0] for fault in faults] == ["SPIDERPOOL_ATTEMPTS", "SPIDERPOOL_AUTH", "unknown"]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"SPIDERPOOL_LEASE_S": 2, "SPIDERPOOL_SEND_MARGIN_S": 1}, "SPIDERPOOL_SEND_MARGIN_S"),
        ({"SPIDERPOOL_RESEND_S": 700}, "SPIDERPOOL_RESEND_MAX_S"),
        ({"SPIDERPOOL_MAX_BYTES": 2**30}, "SPIDERPOOL_MAX_UNPACKED_BYTES"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: dict[str, Any], named: str) -> None:
    """Two values that are right alone but not together are a fault too."""
    [fault] = _faults(config)
    assert fault.startswith(named)


def test_a_password_is_not_shown() -> None:
    """The error of a wrong URL goes to logs: it hides the password."""
    [fault] = _faults({"SPIDERPOOL_REDIS_URL": "http://me:secret@host/0"})
    assert "secret" not in fault
    assert "//***@host" in fault


def test_the_environment_fills_what_the_app_leaves_open() -> None:
    """A key of the environment counts unless the app's configuration has it too."""
    environ = {"SPIDERPOOL_ATTEMPTS": "7", "SPIDERPOOL_DEATHS": "8"}
    settings = settings_from({"SPIDERPOOL_DEATHS": 2}, environ)
    assert (settings.attempts, settings.deaths) == (7, 2)


def test_unknown_keys_of_the_environment_are_passed_over() -> None:
    """The environment holds keys such as SPIDERPOOL_ROLE that are no settings."""
    assert settings_from({}, {"SPIDERPOOL_ROLE": "worker", "SPIDERPOOL_TEST_PG": "x"}) == Settings()


def test_a_bad_value_of_the_environment_is_a_fault() -> None:
    """A known key is checked wherever it stands."""
    assert "SPIDERPOOL_ATTEMPTS" in _faults({}, {"SPIDERPOOL_ATTEMPTS": "none"})[0]
