"""A tiny random llama: weights, byte-level BPE tokenizer and ChatML template, made from a seed alone.

Whatever format it is written in, it is the same model: engines that load it give the same greedy answers. Rows of the
output layer that would end an answer or print something odd are zero: answers are plain text of the length asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Tensors = dict[str, np.ndarray]

SPECIALS = ["<|pad|>", "<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% if tools %}{{ '<|im_start|>system\\n<tools>' }}{% for t in tools %}{{ t | tojson }}{% endfor %}"
    "{{ '</tools><|im_end|>\\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
    "{% if m['content'] is string %}{{ m['content'] }}"
    "{% elif m['content'] %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endif %}"
    "{% if m['tool_calls'] %}{% for c in m['tool_calls'] %}{{ '<tool_call>' }}"
    "{{ {'name': c['function']['name'], 'arguments': c['function']['arguments']} | tojson }}"
    "{{ '</tool_call>' }}{% endfor %}{% endif %}{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_TEXT = (
    "the of and to in is you that it he was for on are as with his they I at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part gateway model "
    "token prompt cache server stream request response hello world user assistant system please explain short story "
    "data code test list name value type where after back little only round man year came show every good me give our "
    "under very through just form sentence great think say help low line differ turn cause much mean before move right "
    "boy old too same tell does set three want air well also play small end put home read hand port large spell add "
    "even land here must big high such follow act why ask men change went light kind off need house picture try us "
    "again animal point mother near build self earth father"
)
_VOCABULARY_STEP = 64  # some engines round a vocabulary up to this; with it all of them have the same


class Shape(NamedTuple):
    """The model's dimensions."""

    dim: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    feed_forward: int = 256

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def tokenizer() -> tuple[list[str], list[tuple[str, str]]]:
    """The tokens in the order of their ids, special ones last, and the merges in the order of their rank."""
    letters = _letters()
    tokens = [letters[byte] for byte in range(256)]
    seen = set(tokens)
    merges = []
    for word in _TEXT.split():
        for variant in (letters[ord(" ")] + word, word, word.capitalize()):
            head = variant[0]
            for letter in variant[1:]:
                if head + letter not in seen:
                    seen.add(head + letter)
                    tokens.append(head + letter)
                    merges.append((head, letter))
                head += letter
    tokens += SPECIALS
    while len(tokens) % _VOCABULARY_STEP:
        tokens.insert(-len(SPECIALS), f"<|extra{len(tokens)}|>")
    return tokens, merges


def weights(seed: int, shape: Shape) -> Tensors:
    """The float32 tensors under their Hugging Face names."""
    tokens, _ = tokenizer()
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        drawn: np.ndarray = (random.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(np.float32)
        return drawn

    dim, key_dim = shape.dim, shape.kv_heads * shape.head_dim
    tensors: Tensors = {
        "model.embed_tokens.weight": random.standard_normal((len(tokens), dim)).astype(np.float32),
        "model.norm.weight": np.ones(dim, np.float32),
    }
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}"
        tensors[f"{prefix}.input_layernorm.weight"] = np.ones(dim, np.float32)
        tensors[f"{prefix}.post_attention_layernorm.weight"] = np.ones(dim, np.float32)
        tensors[f"{prefix}.self_attn.q_proj.weight"] = matrix(dim, dim, 2.0)
        tensors[f"{prefix}.self_attn.k_proj.weight"] = matrix(key_dim, dim, 2.0)
        tensors[f"{prefix}.self_attn.v_proj.weight"] = matrix(key_dim, dim)
        tensors[f"{prefix}.self_attn.o_proj.weight"] = matrix(dim, dim)
        tensors[f"{prefix}.mlp.gate_proj.weight"] = matrix(shape.feed_forward, dim)
        tensors[f"{prefix}.mlp.up_proj.weight"] = matrix(shape.feed_forward, dim)
        tensors[f"{prefix}.mlp.down_proj.weight"] = matrix(dim, shape.feed_forward)
    head = matrix(len(tokens), dim, 4.0)  # widely spread logits: clear winners, so greedy answers are stable
    head[[not _is_plain(token) for token in tokens]] = 0
    tensors["lm_head.weight"] = head
    return tensors


def _is_plain(token: str) -> bool:
    printable = {letter for byte, letter in _letters().items() if 32 <= byte < 127}
    return not token.startswith("<|") and all(letter in printable for letter in token)


def _letters() -> dict[int, str]:
    """The letter that stands for each byte in a byte-level vocabulary: itself where it prints, else one from 256 on."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in itself]
    return {**{byte: chr(byte) for byte in itself}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}
