"""The documents of a request to rerank."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class _Document(msgspec.Struct):
    """A document to rerank that is an object."""

    text: str | None = None


_document = msgspec.json.Decoder(str | _Document)


def in_documents(documents: Sequence[msgspec.Raw] | None) -> list[int]:
    """The characters of each document to rerank."""
    return [_in_document(document) for document in documents or ()]


def _in_document(document: msgspec.Raw) -> int:
    try:
        text = _document.decode(document)
    except ValueError:  # of another type: the engine decides whether that is an error
        return 0
    return len(text if isinstance(text, str) else text.text or "")
