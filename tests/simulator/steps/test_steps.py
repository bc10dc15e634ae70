from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest

from enginehouse import ConfigError
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer, PassCosts, StepLoad
from enginehouse_sim.simulator.steps.models import ConstantSteps, PassSteps, StepModel
from enginehouse_sim.simulator.steps.profile import (
    AnyProfile,
    PassProfile,
    load_profile,
    profile_names,
)
from tests.support.asked import new_state


def ms(model: StepModel, **load: int) -> float:
    return model.seconds(StepLoad(**load)) * 1000


def prompt(tokens: int, cached: int = 0) -> dict[str, int]:
    """The load of ``tokens`` of one prompt, behind ``cached`` ones."""
    return {"prefill_tokens": tokens, "prefill_pairs": tokens * cached, "own_pairs": tokens * (tokens + 1) // 2}


class TestConstant:
    model = ConstantSteps(ttft=0.05, tpot=0.01)

    def test_a_request_alone_has_its_first_token_after_ttft_however_its_prompt_is_read(self) -> None:
        chunk, end = StepLoad(prefill_tokens=100), StepLoad(prefill_tokens=7, first_tokens=1)
        assert sum(map(self.model.seconds, [chunk, chunk, end])) == 0.05

    def test_each_other_token_takes_tpot_for_any_number_of_requests(self) -> None:
        assert self.model.seconds(StepLoad(decodes=1)) == self.model.seconds(StepLoad(decodes=99)) == 0.01

    def test_a_step_with_nothing_to_do_takes_no_time(self) -> None:
        assert self.model.seconds(StepLoad()) == 0


class TestPolynomial:
    model = load_profile("polynomial").steps

    @pytest.mark.parametrize(("tokens", "expected"), [(1024, 32.5), (8192, 169.1)])
    def test_prompts(self, tokens: int, expected: float) -> None:
        assert ms(self.model, prefill_tokens=tokens) == pytest.approx(expected, abs=0.05)

    @pytest.mark.parametrize(("used", "expected"), [(0, 5.74), (500, 26.3), (1000, 34.0), (5000, 34.0)])
    def test_tokens(self, used: int, expected: float) -> None:
        load = {"decodes": 1, "active_kv_tokens": used, "total_kv_tokens": 1000}
        assert ms(self.model, **load) == pytest.approx(expected, abs=0.05)

    def test_a_cache_without_room_is_full(self) -> None:
        assert ms(self.model, decodes=1) == pytest.approx(34.0, abs=0.05)

    def test_prompts_and_tokens_in_one_step_add_up(self) -> None:
        both = ms(self.model, prefill_tokens=1024, decodes=1, active_kv_tokens=500, total_kv_tokens=1000)
        assert both == pytest.approx(32.5 + 26.3, abs=0.1)

    def test_a_token_takes_the_floor_at_least(self, tmp_path: Path) -> None:
        file = tmp_path / "fast.toml"
        file.write_text(
            'description = "d"\nsource = "s"\nobtained = "measured"\n'
            'kind = "polynomial"\nprefill = [0.0]\ndecode = [0.25]\nfloor_ms = 1.0\n'
        )
        assert ms(load_profile(str(file)).steps, decodes=1) == 1.0


@pytest.mark.parametrize(("speedup", "seconds"), [(2.0, [0.04, 0.02]), (0.0, [0.0, 0.0])])
def test_the_speedup_divides_the_time_and_0_leaves_none(speedup: float, seconds: list[float]) -> None:
    core = build_core(CoreSettings(ttft=0.08, tpot=0.04, speedup=speedup), makes_text=False)
    core.scheduler.add_request(new_state(request_id="a", prompt_token_ids=[0] * 10, max_tokens=2))
    assert [core.step().seconds for _ in range(2)] == pytest.approx(seconds)


SHEETS = {
    "h100": (989e12, 3.35e12),
    "h200": (989e12, 4.8e12),
    "a100": (312e12, 2.039e12),
    "l40s": (362e12, 0.864e12),
    "l4": (121e12, 0.3e12),
    "a10g": (70e12, 0.6e12),
}
"""Dense 16-bit operations per second, and bytes per second."""


def roofline(flops: float, bandwidth: float) -> PassCosts:
    """The costs of Llama 3 8B by the formulas of the manual."""
    layers, heads, kv_heads, width, hidden = 32, 32, 8, 128, 4096
    head = hidden * 128256
    matrices = layers * (2 * hidden * hidden + 2 * hidden * kv_heads * width + 3 * hidden * 14336)
    pair = 4000 * layers * heads * width / (0.5 * flops)
    costs = {
        "weights_ms": 2000 * (matrices + head) / (0.8 * bandwidth),
        "token_ms": 2000 * matrices / (0.5 * flops),
        "pair_ms": pair,
        "kv_token_ms": max(pair, 4000 * layers * kv_heads * width / (0.8 * bandwidth)),
        "sequence_ms": 2000 * head / (0.5 * flops),
    }
    return PassCosts(**{name: float(f"{ms:.4g}") for name, ms in costs.items()})


@pytest.mark.parametrize("gpu", SHEETS)
def test_a_computed_profile_is_what_the_data_sheet_gives(gpu: str) -> None:
    profile = load_profile(f"{gpu}-llama3-8b")
    assert isinstance(profile, PassProfile)
    assert profile.costs == roofline(*SHEETS[gpu])
    assert f"{SHEETS[gpu][0] / 1e12:g} TFLOPS (16 bit, dense) and {SHEETS[gpu][1] / 1e12:g} TB/s" in profile.source
    assert profile.kv == KvShape()


class TestComputedProfile:
    profile = load_profile("h100-llama3-8b")

    def test_it_says_that_it_was_not_measured(self) -> None:
        assert self.profile.obtained == "computed"
        assert "not measured" in self.profile.source

    def test_a_token_of_one_request_takes_the_reading_of_the_weights(self) -> None:
        weights = 2 * 7.504e9  # 8.03 billion parameters without the embeddings, in 16 bit
        assert ms(self.profile.steps, decodes=1) == pytest.approx(1000 * weights / (0.8 * 3.35e12), rel=0.01)

    def test_a_token_takes_longer_the_more_is_in_the_cache_and_the_more_requests_there_are(self) -> None:
        def cost(active: int, batch: int) -> float:
            return ms(self.profile.steps, decodes=batch, active_kv_tokens=active)

        assert cost(0, 1) < cost(100_000, 1) < cost(1_000_000, 1)
        assert cost(0, 1) <= cost(0, 256) < cost(0, 512) < cost(0, 4096)

    def test_a_prompt_costs_more_behind_a_longer_context(self) -> None:
        alone = ms(self.profile.steps, **prompt(1024))
        assert ms(self.profile.steps, **prompt(1024, cached=8192)) > alone

    def test_two_halves_of_a_prompt_cost_about_as_much_as_the_whole(self) -> None:
        model = self.profile.steps
        halves = ms(model, **prompt(4096)) + ms(model, **prompt(4096, cached=4096))
        assert halves == pytest.approx(ms(model, **prompt(8192)), rel=0.01)

    def test_a_few_prompt_tokens_beside_answers_are_nearly_free(self) -> None:
        answers = {"decodes": 16, "active_kv_tokens": 16_000}
        alone, mixed = (ms(self.profile.steps, **answers, **more) for more in ({}, prompt(64)))
        assert alone < mixed < 1.02 * alone

    def test_two_prompts_in_a_step_attend_each_to_its_own_tokens(self) -> None:
        two = {"prefill_tokens": 8192, "own_pairs": 2 * prompt(4096)["own_pairs"]}
        saved = 4096 * 4096 * 1.06e-6  # the pairs between the two, in milliseconds
        assert ms(self.profile.steps, **prompt(8192)) - ms(self.profile.steps, **two) == pytest.approx(saved, rel=0.01)


class TestPass:
    """A pass by hand: the figures of a real vLLM on a CPU with a tiny model."""

    model = PassSteps(
        PassCosts(
            fixed_ms=2.04,
            weights_ms=1.0,
            token_ms=0.018,
            pair_ms=2.6e-5,
            kv_token_ms=2.8e-4,
            sequence_ms=0.054,
            prompt_ms=0.96,
        )
    )

    def test_a_decode(self) -> None:
        expected = 2.04 + 1.0 + 2.8e-4 * 5000 + 0.054 * 10
        assert ms(self.model, decodes=10, active_kv_tokens=5000) == pytest.approx(expected)

    def test_a_prompt(self) -> None:
        expected = 2.04 + 0.018 * 512 + 0.96 + 2.6e-5 * (512 * 100 + 512 * 513 / 2) + 0.054
        assert ms(self.model, **prompt(512, cached=100), first_tokens=1) == pytest.approx(expected)

    def test_a_mixed_step_pays_the_fixed_cost_once_and_the_longer_of_weights_and_tokens(self) -> None:
        expected = 2.04 + 0.018 * 74 + 0.96 + 2.6e-5 * 64 * 65 / 2 + 2.8e-4 * 5000 + 0.054 * 10
        assert ms(self.model, **prompt(64), decodes=10, active_kv_tokens=5000) == pytest.approx(expected)

    def test_drafts_are_computed_too(self) -> None:
        with_drafts, without = (ms(self.model, decodes=60, draft_tokens=drafts) for drafts in (180, 0))
        assert with_drafts - without == pytest.approx(0.018 * 180)

    def test_a_step_with_nothing_to_do_takes_no_time(self) -> None:
        assert self.model.seconds(StepLoad()) == 0

    @pytest.mark.parametrize("value", ["-1.0", "nan"])
    def test_a_cost_below_0_is_refused(self, tmp_path: Path, value: str) -> None:
        file = tmp_path / "file.toml"
        file.write_text(HEAD + f"[costs]\ntoken_ms = {value}\n")
        with pytest.raises(ConfigError, match=r"costs\.token_ms"):
            load_profile(str(file))


def test_the_profiles_that_come_along_can_be_loaded() -> None:
    computed = [f"{gpu}-llama3-8b" for gpu in ("a100", "a10g", "h100", "h200", "l4", "l40s")]
    assert profile_names() == [*computed, "polynomial"]
    for name in profile_names():
        assert load_profile(name).description


def test_an_unknown_profile_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match='did you mean "polynomial"'):
        load_profile("polynomal")
    with pytest.raises(ConfigError, match=r"use one of a100-llama3-8b, .*, polynomial, or the path"):
        load_profile("?")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load_profile(str(tmp_path / "missing.toml"))


HEAD = 'description = "d"\nsource = "s"\nobtained = "measured"\nkind = "pass"\n'
COSTS = "[costs]\ntoken_ms = 1.0\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind", "file.toml"),
        (HEAD, "costs"),
        (HEAD + "more = 1\n" + COSTS, "more"),
        (HEAD.replace("measured", "guessed") + COSTS, "guessed"),
        (HEAD.replace("pass", "table") + COSTS, "table"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "file.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_profile(str(file))


def test_keys_and_values_take_their_bytes_over_the_bandwidth() -> None:
    assert KvShape().bytes_per_token == 128 * 1024
    assert KvTransfer(KvShape(), bandwidth=64e9).seconds(1000) == pytest.approx(1000 * 131072 / 64e9)
    assert KvTransfer(KvShape(), bandwidth=0).seconds(1000) == 0


def from_the_manual(kind: str, folder: Path) -> AnyProfile:
    manual, begin = (resources.files("enginehouse_sim") / "README.md").read_text(), f'kind = "{kind}"'
    file = folder / "manual.toml"
    file.write_text(begin + manual.partition(f"```toml\n{begin}")[2].partition("```")[0])
    return load_profile(str(file))


def test_the_pass_in_the_manual_is_read(tmp_path: Path) -> None:
    profile = from_the_manual("pass", tmp_path)
    assert ms(profile.steps, decodes=1) == pytest.approx(2.0 + 5.6 + 0.002)
    assert profile.kv == KvShape()
