"""`serve.toml`, the environment and flags: one table of settings, and errors that help."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from served_models import times, write_version
from sojourn.errors import ModelError
from sojourn.service.config import Config, ConfigError, read_config
from sojourn.service.config_changes import changes, check
from sojourn.service.rules import ModelRules, keep_seconds, parse_duration
from sojourn.service.settings import SETTINGS, Settings

pytestmark = pytest.mark.quick


def read(tmp_path: Path, text: str, **environment: str) -> Config:
    (tmp_path / "serve.toml").write_text(text)
    return read_config(str(tmp_path / "serve.toml"), environment)


def problems(tmp_path: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text, **environment)
    return [problem.replace(f"{tmp_path}/", "") for problem in error.value.problems]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for number in (1, 2):
        write_version(folder / "many", number)
    (folder / "one.onnx").write_bytes(times(1))
    (folder / "README.txt").write_text("\nno model\n")
    (folder / ".hidden.onnx").write_bytes(times(1))
    return folder


def test_without_anything_there_are_the_defaults():
    config = read_config(None, {})
    assert config.settings == Settings()
    assert config.entries() == {}


def test_a_file_names_models_with_paths_relative_to_itself(tmp_path, models):
    config = read(
        tmp_path,
        """
        memory = "8GiB"
        paths = ["models"]
        tokens = "secrets/tokens"
        history = "page.db"
        [defaults]
        keep_alive = "10m"
        [models.second]
        path = "models/many"
        versions = "all"
        labels = {stable = 1}
        """,
    )
    assert config.settings.tokens == str(tmp_path / "secrets/tokens")
    assert config.settings.history == str(tmp_path / "page.db")
    entries = config.entries()
    assert sorted(entries) == ["many", "one", "second"]
    assert entries["second"].path == str(models / "many")
    assert entries["second"].labels == {"stable": 1}
    assert {rules.keep_alive for rules in entries.values()} == {"10m"}


def test_a_folder_may_have_an_equals_sign_in_its_name(tmp_path, models):
    models.rename(tmp_path / "a=b")
    for config in (
        read(tmp_path, 'paths = ["a=b", "second=a=b/many"]'),
        read_config(None, {}, {"paths": [f"{tmp_path}/a=b", f"second={tmp_path}/a=b/many"]}),
    ):
        assert sorted(config.entries()) == ["many", "one", "second"]
        assert config.entries()["second"].path == str(tmp_path / "a=b/many")


def test_flags_win_over_the_environment_which_wins_over_the_file(tmp_path):
    (tmp_path / "serve.toml").write_text('http = ":1"\ngrpc = ":1"\nadmin = "off"\nspares = 3')
    config = read_config(
        str(tmp_path / "serve.toml"),
        {
            "SOJOURN_SERVE_GRPC": ":2",
            "SOJOURN_SERVE_ADMIN": "on",
            "SOJOURN_SERVE_MAX_BATCH": "8",
            "SOJOURN_SERVE_PATHS": "a, b=c",
            "SOJOURN_SERVE_TRACE": "true",
        },
        {"admin": ":3", "memory": None, "devices": ()},
    )
    settings = config.settings
    assert (settings.http, settings.grpc, settings.admin) == (":1", ":2", ":3")
    assert settings.spares == 3
    assert settings.trace
    assert config.folders == (str(Path("a").resolve()),)
    assert config.models["b"] == ModelRules(path=str(Path("c").resolve()), max_batch=8)


def test_every_problem_is_told_with_its_line_and_what_was_probably_meant(tmp_path):
    told = problems(
        tmp_path,
        """memori = "8GiB"
http = "nowhere"
spares = "two"

[defaults]
keep_alive = "soon"

[models.resnet]
path = "models/resnet"
copes = 2

[models."a/b"]
copies = 0
timeout = 0

[modles.x]
path = "x"
""",
        SOJOURN_SERVE_MEMROY="1GiB",
        SOJOURN_SERVE_MAX_CONNECTIONS="many",
    )
    assert told == [
        "SOJOURN_SERVE_MAX_CONNECTIONS: max_connections: must be int, not str",
        "SOJOURN_SERVE_MEMROY: no such setting; did you mean 'SOJOURN_SERVE_MEMORY'?",
        "serve.toml:1: no such setting: 'memori'; did you mean 'memory'?",
        "serve.toml:2: http must be an address such as '127.0.0.1:8501', not 'nowhere'",
        "serve.toml:3: spares: must be int, not str",
        "serve.toml:6: defaults: keep_alive must be a number of seconds or a duration such as "
        "'5m', not 'soon'",
        "serve.toml:10: models.resnet: no such setting: 'copes'; did you mean 'copies'?",
        "serve.toml:12: models.a/b: a model needs a path",
        "serve.toml:12: models.a/b: a model's name must be text without / or :, not 'a/b'",
        "serve.toml:13: models.a/b: copies must be a whole number of at least 1, not 0",
        "serve.toml:14: models.a/b: timeout must be positive, not 0.0",
        "serve.toml:16: no such setting: 'modles'; did you mean 'models'?",
    ]


FILE = """# a server
http = ":1"
devices = [
  "cpu",  # copes = 1
]

[defaults]
keep_alive = "5m"   # http = 2

[models . "a.b"]  # quoted
path = "a"
labels.stable = 1
outputs = {y = "y:0"}

[models.'c']
path = '''
c'''
""".splitlines()


@given(st.integers(0, len(FILE)))
def test_a_mistake_is_found_at_its_line_wherever_it_is(at):
    assume(FILE[at - 1] not in ("devices = [", '  "cpu",  # copes = 1', "path = '''"))
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join([*FILE[:at], "copes = 2", *FILE[at:]])
        (problem,) = problems(Path(folder), text)
    assert problem.startswith(f"serve.toml:{at + 1}: ")
    assert "no such setting: 'copes'" in problem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('http = "nowhere"', "serve.toml:1: http must be an address such as"),
        ('http = "h:99999"', "serve.toml:1: http must be an address such as"),
        ("\nx = = 1", "serve.toml:2: invalid value"),
        ("[models]\nm = 1", "serve.toml:2: models: must be a table, [models.m]"),
        ("[[models]]\na = 1", "serve.toml:1: must be a table, [models]"),
        ('\ufeffhttp = "nowhere"', "serve.toml:1: http must be an address such as"),
        ('tls_key = "k"', "serve.toml:1: tls_certificate and tls_key must be given together"),
        ('http = "h:8500"\ngrpc = "h:8500"', "serve.toml:2: grpc must not be at the address of"),
        ('admin = "127.0.0.1:8501"', "serve.toml:1: admin must not be at the address of http"),
        ('tls_client_ca = "k"', "serve.toml:1: tls_client_ca needs"),
        ('log_level = "loud"', "serve.toml:1: log_level must be one of debug"),
        ('[models.m]\npath="m"\ntimeout = 0', "serve.toml:3: models.m: timeout must be positive"),
        ('[models.m]\npath="m"\nversions = "new"', "serve.toml:3: models.m: versions must be"),
        (
            '[models.m]\npath="m"\nload = "soon"',
            "serve.toml:3: models.m: load must be one of lazy, eager,",
        ),
        (
            '[models.m]\npath="m"\nengine = "x"',
            "serve.toml:3: models.m: engine must be one of tens",
        ),
        (
            '[models.m]\npath="m"\nlabels = {x = 0}',
            "serve.toml:3: models.m: labels: the version of",
        ),
        ('[models.m]\npath="m"\nmax_runs = 0', "serve.toml:3: models.m: max_runs must be a whole"),
        ('[models.m]\npath="m"\nlabels = {x = "1"}', "serve.toml:3: models.m: labels: must be int"),
        ('[defaults]\npath = "m"', "serve.toml:2: defaults: a path is for one model"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(tmp_path, text, told):
    (problem,) = problems(tmp_path, text)
    assert problem.startswith(told)


def test_the_variables_that_kubernetes_sets_for_a_service_of_this_name_are_nobodys_mistake():
    read_config(
        None,
        {
            "SOJOURN_SERVE_SERVICE_HOST": "10.0.0.1",
            "SOJOURN_SERVE_SERVICE_PORT_HTTP": "8501",
            "SOJOURN_SERVE_PORT": "tcp://10.0.0.1:8501",
            "SOJOURN_SERVE_PORT_8501_TCP_ADDR": "10.0.0.1",
        },
    )


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        read_config(str(tmp_path / "none.toml"), {})


def test_check_says_what_the_server_would_do_and_what_would_go_wrong(tmp_path, models):
    (tmp_path / "t").touch()
    text = """
        paths = ["models"]
        http = ""
        memory = "8GiB"
        tokens = "t"
        [models.many]
        path = "models/many"
        versions = "latest 2"
        copies = 2
        """
    assert str(check(read(tmp_path, text))).replace(f"{tmp_path}/", "") == "\n".join(
        [
            "no HTTP",
            "listen on 127.0.0.1:8500 for gRPC",
            "memory = 8GiB",
            "tokens = t",
            "model many: an ONNX model at models/many, versions 1, 2, copies 2",
            "model one: an ONNX model at models/one.onnx",
        ]
    )
    text = text.replace("latest 2", "7") + "labels = {new = 3}\n[models.gone]\npath = 'gone'"
    wrong = check(read(tmp_path, text.replace('"t"', '"u"'))).problems
    assert [problem.replace(f"{tmp_path}/", "") for problem in wrong] == [
        "model gone: there is nothing at gone: no such file or folder",
        "model many: models/many has [1, 2], and versions 7 are wanted",
        "tokens: u cannot be read",
    ]
    assert check(read_config(None, {})).problems == ("there are no models to serve",)


@pytest.mark.parametrize("what", ["access_log", "ready_file", "history"])
def test_check_says_where_nothing_can_be_written(tmp_path, models, what):
    (there,) = check(read(tmp_path, f'paths = ["models"]\n{what} = "f"')).problems or ("",)
    (gone,) = check(read(tmp_path, f'paths = ["models"]\n{what} = "gone/f"')).problems
    assert there == ""
    assert gone == f"{what}: {tmp_path}/gone is no folder that can be written to"
    assert not check(read(tmp_path, 'paths = ["models"]\naccess_log = "-"')).problems


def test_a_model_that_no_answer_could_list_is_not_served(tmp_path, models):
    path = str(tmp_path / os.fsdecode(b"bad\xff.onnx"))
    os.link(models / "one.onnx", path)
    with pytest.raises(ModelError, match="its name is not UTF-8; serve it as NAME=PATH"):
        read_config(None, {}, {"paths": [path]}).entries()
    with pytest.raises(ConfigError, match="must be text"):
        read_config(None, {}, {"paths": [os.fsdecode(b"bad\xff") + f"={path}"]})
    assert list(read_config(None, {}, {"paths": [f"good={path}"]}).entries()) == ["good"]


def test_a_change_is_told_and_what_takes_a_restart_is_said(tmp_path):
    one = read(tmp_path, 'http = ":1"\n[models.a]\npath = "a"\n[models.b]\npath = "b"')
    models = '[models.b]\npath = "b"\ncopies = 2\n[models.c]\npath = "c"'
    other = read(tmp_path, f'http = ":2"\nwatch = 5\n{models}')
    told = changes(one, other, one.entries(), other.entries())
    assert str(told) == "\n".join(
        [
            "model c: new",
            "model a: removed",
            "model b: copies = 2 instead of 1, which opens it again",
            "watch: 5.0 instead of 2.0",
            "http: ':2' instead of ':1'; this takes a restart",
        ]
    )
    assert str(changes(one, one, one.entries(), one.entries())) == "nothing has changed"


def test_every_setting_has_a_flag_and_a_variable_of_its_own_and_says_what_it_does():
    flags = [setting.flag for setting in SETTINGS]
    variables = [setting.variable for setting in SETTINGS]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)
    assert all(setting.help for setting in SETTINGS)
    assert set(Settings.__struct_fields__) <= {setting.name for setting in SETTINGS}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (5, 5),
        ("5", 5),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (0, 0),
        ("0", 0),
    ],
)
def test_keep_alive_is_written_as_ollama_has_it(written, seconds):
    assert keep_seconds(written) == pytest.approx(seconds)


def test_a_negative_keep_alive_is_for_ever():
    assert keep_seconds(-1) == keep_seconds("-1") == keep_seconds("-5m") == float("inf")
    assert keep_seconds(None) is None
    for wrong in ("", "5 minutes", "m", "nan", True, "1" * 10**6):  # the last in a moment
        with pytest.raises(ValueError):
            parse_duration("keep_alive", wrong)
