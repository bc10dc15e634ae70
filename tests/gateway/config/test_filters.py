from __future__ import annotations

import pytest

from tests.support.config_files import Load, Refuse


def test_filters_are_read(load: Load) -> None:
    text = """
    [models.m.filters]
    strip = ["top_p", "a.b"]
    set = { temperature = 0.5, "chat_template_kwargs.enable_thinking" = false, stop = ["x"] }
    """
    filters = load(text).config.models["m"].filters
    assert filters.strip == ["top_p", "a.b"]
    assert filters.set == {"temperature": 0.5, "chat_template_kwargs.enable_thinking": False, "stop": ["x"]}


@pytest.mark.parametrize(
    ("line", "key", "problem"),
    [
        (
            'strip = ["x", "model"]',
            "models.m.filters.strip[1]",
            "cannot be changed (use routing.aliases",
        ),
        (
            'set = { model = "x" }',
            "models.m.filters.set.model",
            "cannot be changed (use routing.aliases",
        ),
        (
            'set = { "model.x" = 1 }',
            'models.m.filters.set."model.x"',
            "cannot be changed (use routing.aliases",
        ),
        ('strip = [""]', "models.m.filters.strip[0]", "names no field"),
        ('set = { "a..b" = 1 }', 'models.m.filters.set."a..b"', "names no field"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(line: str, key: str, problem: str, refuse: Refuse) -> None:
    error = refuse(f"[models.m.filters]\n{line}\n")
    assert error.key == key
    assert problem in str(error)
