from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from enginehouse.config.load_config import load_config
from enginehouse.config.secrets import Secret
from enginehouse_offline.render import effective
from tests.support.config_files import Load, Refuse

KEY = "[auth]\nkeys = [{{ name = 'alice', key = '{}' }}]"
BACKEND = "[backends.gpu-1]\nurl = 'http://h'\napi_key = '{}'"


def test_a_secret_comes_from_the_environment(load: Load) -> None:
    config = load(BACKEND.format("env:GPU1_KEY"), GPU1_KEY="s3cret").config
    assert config.backends["gpu-1"].api_key == "s3cret"


def test_a_secret_comes_from_a_file_beside_the_configuration(load: Load, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "alice").write_text("s3cret\n")
    assert load(KEY.format("file:keys/alice")).config.auth.keys[0].key == "s3cret"


def test_only_the_line_break_at_the_end_of_a_file_is_dropped(load: Load, tmp_path: Path) -> None:
    (tmp_path / "alice").write_bytes(b" s3 cret \r\n")
    assert load(KEY.format(f"file:{tmp_path / 'alice'}")).config.auth.keys[0].key == " s3 cret "


def test_a_secret_may_come_from_an_override(load: Load) -> None:
    overrides = {"ENGINEHOUSE_AUTH_KEYS_0_KEY": "env:OTHER", "OTHER": "s3cret"}
    assert load(KEY.format("x"), **overrides).config.auth.keys[0].key == "s3cret"


def test_without_a_file_paths_start_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("alice").write_text("s3cret")
    Path("enginehouse.toml").write_text(KEY.format("file:alice"))
    assert load_config(None, {}).config.auth.keys[0].key == "s3cret"


@pytest.mark.parametrize(
    ("reference", "problem", "remedy"),
    [
        ("env:NOPE", "the environment variable NOPE is not set", "set it, or name another"),
        ("env:EMPTY", "env:EMPTY is empty", "put the secret there"),
        ("file:nope", "cannot read {folder}/nope: No such file or directory", "create the file, or name another"),
        ("file:.", "cannot read {folder}: Is a directory", "create the file, or name another"),
        (
            "file:~no-one/x",
            "cannot find ~no-one/x: Could not determine home directory.",
            "name the file by its whole path",
        ),
        ("file:empty", "file:empty is empty", "put the secret there"),
        ("file:binary", "{folder}/binary is not UTF-8 text", "put only the secret there"),
        ("***", "is the mask of a secret", 'put the secret itself here, "env:NAME" or "file:PATH"'),
    ],
)
@pytest.mark.parametrize(("text", "key"), [(KEY, "auth.keys[0].key"), (BACKEND, "backends.gpu-1.api_key")])
def test_a_secret_that_cannot_be_had_names_key_and_remedy(
    refuse: Refuse, tmp_path: Path, text: str, key: str, reference: str, problem: str, remedy: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff")
    error = refuse(text.format(reference), EMPTY="")
    assert (error.key, error.problem, error.remedy) == (key, problem.format(folder=tmp_path), remedy)


@pytest.mark.parametrize(
    "text",
    [
        "[auth]\nkeys = ['s3cret']",
        "[auth]\nkeys = 's3cret'",
        "[auth]\nkeys = [{ name = 'a', key = ['s3cret'] }]",
        "[auth]\nkeys = [{ name = 'a', key = { value = 's3cret' } }]",
        "[auth]\nkeys = [{ name = 's3cret', key = 's3cret', nmae = 1 }]",
        "[backends.b]\nurl = 'ftp://user:s3cret@h'",
        "[backends.b]\nurl = 'http://h'\napi_key = 53_53",
        "[auth]\nkeys = [{ name = 'a', key = 's3cret' }",
    ],
)
def test_an_error_never_shows_a_secret(refuse: Refuse, text: str) -> None:
    message = str(refuse(text))
    assert "s3cret" not in message
    assert "5353" not in message


def test_neither_repr_nor_printed_configuration_shows_a_secret(load: Load, tmp_path: Path) -> None:
    (tmp_path / "bob").write_text("s3cret-b")
    text = """
    [[auth.keys]]
    name = "alice"
    key = "env:ALICE"
    [[auth.keys]]
    name = "bob"
    key = "file:bob"
    [[auth.keys]]
    name = "carol"
    key = "s3cret-c"
    [backends.b]
    url = "http://h"
    """
    config = load(text, ALICE="s3cret-a").config
    shown = effective(config)
    assert "s3cret" not in repr(config) + shown + repr(config.auth.keys[2].key)
    for line in ('key = "env:ALICE"', 'key = "file:bob"', 'key = "***"', 'api_key = ""'):
        assert line in shown


def test_a_secret_survives_the_way_to_another_process() -> None:
    secret = pickle.loads(pickle.dumps(Secret("s3cret", "env:A")))
    assert (secret, secret.reference, repr(secret)) == ("s3cret", "env:A", "'***'")


@pytest.mark.parametrize("value", ["0", "0,1", "-1", "0.90", "10000", "true", "OFF", "", "${env:HF_TOKEN}", "${path}"])
def test_an_engines_variable_is_printed_if_it_is_no_secret(load: Load, value: str) -> None:
    config = load(f'[models.m]\ncommand = "serve ${{port}}"\nenv = {{ A = "{value}" }}').config
    assert f'A = "{value}"' in effective(config)
    assert load(effective(config)).config == config


@pytest.mark.parametrize("value", ["hf_s3cret", "env:S3CRET", "file:s3cret", "123456", "x ${env:S3CRET}", "/a/b"])
def test_any_other_variable_of_an_engine_is_masked(load: Load, refuse: Refuse, value: str) -> None:
    text = f'[models.m]\ncommand = "serve ${{port}}"\nenv = {{ A = "{value}" }}'
    shown = effective(load(text).config)
    assert value not in shown
    assert 'A = "***"' in shown
    error = refuse(shown)
    assert (error.key, error.problem) == ("models.m.env.A", "is the mask of a secret")
    assert "${env:NAME}" in error.remedy


def test_an_error_does_not_show_an_engines_variable(refuse: Refuse) -> None:
    error = refuse('[models.m]\ncommand = "serve ${port}"\nenv = { HF_TOKEN = 778899 }')
    assert "778899" not in str(error)
