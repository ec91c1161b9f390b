"""docs/serving.md says what is true of the server."""

from __future__ import annotations

import re

import settings_table
from sojourn.service.tokens import VARIABLES


def test_the_tables_of_settings_are_those_of_the_server() -> None:
    text = settings_table.PAGE.read_text()
    assert settings_table.inserted(text) == text, "run tests/settings_table.py to write them"


def test_the_example_of_a_configuration_is_one_that_is_accepted(tmp_path) -> None:
    from sojourn.service.config import read_config

    [example] = re.findall(r"```toml\n(.*?)```", settings_table.PAGE.read_text(), re.S)
    file = tmp_path / "serve.toml"
    file.write_text(example)
    config = read_config(str(file), {}, {})
    assert set(config.models) == {"resnet", "upload"}
    assert config.models["upload"].untrusted
    assert config.models["resnet"].keep_alive == "10m"


def test_every_variable_with_secrets_is_named() -> None:
    text = settings_table.PAGE.read_text()
    for variable in VARIABLES.values():
        assert variable in text


def test_every_metric_that_an_alert_names_is_there() -> None:
    from sojourn.service.handler import Handler
    from sojourn.service.metrics import families_of_models

    class Nothing(Handler):
        def __init__(self) -> None: ...
        def statistics(self, name=None):
            return ()

        def statuses(self, name=None):
            return ()

    from sojourn.service.reports import Reports
    from sojourn.session.metrics import metrics

    there = {name for name, *_ in families_of_models(Nothing())}
    there |= {name for name, *_ in Reports(bool).counts.families()}
    there |= set(re.findall(r"^# TYPE (\S+)", metrics(), re.M))
    named = re.findall(r"\bsojourn_[a-z_]+", settings_table.PAGE.read_text())
    assert named
    assert set(named) <= there
