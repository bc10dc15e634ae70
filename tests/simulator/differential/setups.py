"""Random workloads for each feature of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulator.differential.workload import EOS, Item, Workload

BLOCK_SIZE = 4
STOP = 2
_FIRST_WORD = 10


def _limits(random: Random) -> dict[str, Any]:
    max_num_seqs = random.randint(1, 8)
    return {
        "block_size": BLOCK_SIZE,
        "total_gpu_blocks": random.randint(24, 60),
        "max_model_len": random.randint(50, 80),
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": random.randint(max(max_num_seqs, 8), 64),
        "watermark": random.choice([0.0, 0.0, 0.1]),
        "reserve_full_sequence": random.random() < 0.8,
        "async_scheduling": False,
    }


def _item(random: Random, number: int, longest: int, last: int) -> Item:
    family, shared, own = random.randint(0, 2), random.randint(0, 24), random.randint(1, 12)
    prompt = [_FIRST_WORD + 100 * family + at for at in range(shared)]
    prompt += [1000 + random.randint(0, 3) for _ in range(own)]
    prompt = prompt[: longest - 1]
    max_tokens = random.randint(1, 24)
    words = [_FIRST_WORD + random.randint(0, 20) for _ in range(max_tokens + 10)]
    for end in (EOS, STOP):
        if random.random() < 0.4:
            words[random.randrange(max_tokens)] = end
    return Item(
        request_id=f"r{number:03}",
        prompt=prompt,
        outputs=words,
        max_tokens=max_tokens,
        min_tokens=random.choice([0, 0, 0, random.randint(0, max_tokens)]),
        ignore_eos=random.random() < 0.2,
        stop_token_ids=[STOP] if random.random() < 0.5 else [],
        arrival_time=float(number),
        comes_at=random.randint(0, last),
        leaves_at=random.randint(0, 60) if random.random() < 0.15 else None,
        salt=random.choice([None, None, None, "salt"]),
    )


def _plain(random: Random, workload: Workload) -> None: ...


def _unchunked(random: Random, workload: Workload) -> None:
    workload.limits["chunked_prefill_enabled"] = False
    workload.limits["max_num_batched_tokens"] = workload.limits["max_model_len"]


def _uncached(random: Random, workload: Workload) -> None:
    workload.limits["enable_prefix_caching"] = False


def _threshold(random: Random, workload: Workload) -> None:
    workload.limits["long_prefill_token_threshold"] = random.randint(3, 10)


def _tight(random: Random, workload: Workload) -> None:
    workload.limits["total_gpu_blocks"] = -(-workload.limits["max_model_len"] // BLOCK_SIZE) + random.randint(1, 4)
    workload.limits["reserve_full_sequence"] = random.random() < 0.5


def _priorities(random: Random, workload: Workload) -> None:
    workload.limits["policy"] = "priority"
    for item in workload.items:
        item.priority = random.randint(0, 3)
        item.arrival_time = float(random.randint(0, 5))


def _priorities_tight(random: Random, workload: Workload) -> None:
    _priorities(random, workload)
    _tight(random, workload)


def _async(random: Random, workload: Workload) -> None:
    workload.limits["async_scheduling"] = True


def _async_tight(random: Random, workload: Workload) -> None:
    _async(random, workload)
    _tight(random, workload)


def _active(random: Random, workload: Workload) -> None:
    workload.limits["max_num_active_seqs"] = random.randint(1, workload.limits["max_num_seqs"])


def _eagle(random: Random, workload: Workload) -> None:
    workload.limits["num_spec_tokens"] = random.randint(1, 4)
    workload.acceptance = random.choice([0.3, 0.7, 0.9])


def _async_eagle(random: Random, workload: Workload) -> None:
    _eagle(random, workload)
    _async(random, workload)


def _async_eagle_tight(random: Random, workload: Workload) -> None:
    _async_eagle(random, workload)
    _tight(random, workload)


def _images(random: Random, workload: Workload) -> None:
    largest = 8
    workload.limits["max_num_encoder_input_tokens"] = random.randint(largest, 24)
    workload.limits["encoder_cache_size"] = random.randint(largest, 24)
    for item in workload.items:
        place = random.randint(0, 4)
        while random.random() < 0.6:
            image = random.randint(0, 4)
            length = (3, 4, 6, 7, largest)[image]
            if place + length > len(item.prompt):
                break
            item.images.append((f"image-{image}", place, length))
            item.prompt[place : place + length] = [3] * length
            place += length + random.randint(0, 5)


def _images_uncached(random: Random, workload: Workload) -> None:
    _images(random, workload)
    _uncached(random, workload)


def _loras(random: Random, workload: Workload) -> None:
    workload.limits["max_loras"] = random.randint(1, 2)
    for item in workload.items:
        item.lora = random.randint(0, 4)


def _sync_connector(random: Random, workload: Workload) -> None:
    workload.connector = True
    for item in workload.items:
        item.external = random.choice([0, BLOCK_SIZE * random.randint(0, 10)])
        item.asks = random.choice([0, 0, random.randint(1, 4)])
        item.send_steps = random.choice([0, 0, random.randint(1, 8)])


def _async_connector(random: Random, workload: Workload) -> None:
    _sync_connector(random, workload)
    for item in workload.items:
        item.load_steps = random.randint(1, 12)
        most = len(item.prompt) if len(item.prompt) > 1 else 0  # vLLM loads a prompt of one token again and again
        item.external = random.choice([0, random.randint(0, most)])


def _async_connector_tight(random: Random, workload: Workload) -> None:
    _async_connector(random, workload)
    _tight(random, workload)
    if random.random() < 0.5:
        _priorities(random, workload)


_SINGLE = (_uncached, _unchunked, _threshold, _tight, _priorities, _active, _images, _loras)
_CONNECTORS = (_sync_connector, _async_connector)


def _combined(random: Random, workload: Workload) -> None:
    """Several features at once, without what ends vLLM's scheduler and what differs: see the scheduler's README."""
    connector = random.choice(_CONNECTORS)
    features = [connector, _eagle, _async, *_SINGLE]
    chosen = {feature for feature in features if random.random() < 0.3}
    if _eagle in chosen:
        chosen -= {_threshold} | ({_tight} if connector in chosen else set())
    if _unchunked in chosen:
        chosen -= {_async_connector, _loras, _images}
    for feature in features:
        if feature in chosen:
            feature(random, workload)


SETUPS: dict[str, Callable[[Random, Workload], None]] = {
    "plain": _plain,
    "without prefix caching": _uncached,
    "chunked prefill off": _unchunked,
    "long_prefill_token_threshold": _threshold,
    "tight pool": _tight,
    "priorities": _priorities,
    "priorities, tight pool": _priorities_tight,
    "async scheduling": _async,
    "async scheduling, tight pool": _async_tight,
    "async scheduling, drafts by EAGLE": _async_eagle,
    "async scheduling, drafts by EAGLE, tight pool": _async_eagle_tight,
    "max_num_active_seqs": _active,
    "drafts by EAGLE": _eagle,
    "images": _images,
    "images, without prefix caching": _images_uncached,
    "LoRA": _loras,
    "connector, loads in a step": _sync_connector,
    "connector, loads between steps": _async_connector,
    "connector, loads between steps, tight pool": _async_connector_tight,
    "several features": _combined,
}


def make_workload(setup: str, seed: int) -> Workload:
    """The workload of a setup for a seed; the same in every process."""
    random = Random(f"{setup} {seed}")
    limits = _limits(random)
    longest = min(limits["max_model_len"], (limits["total_gpu_blocks"] - 1) * BLOCK_SIZE)
    last = random.choice([0, 8, 30])
    items = [_item(random, number, longest, last) for number in range(random.randint(2, 14))]
    workload = Workload(seed=seed, limits=limits, items=items)
    SETUPS[setup](random, workload)
    return workload
