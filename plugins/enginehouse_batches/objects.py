"""Files and batches, as OpenAI's API shows them, and the parameters: https://platform.openai.com/docs/api-reference/batch."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from enginehouse import Period
from enginehouse.services import GatewayCaller

ENDED: Final = frozenset({"failed", "completed", "expired", "cancelled"})
WINDOW_S: Final = 86_400
"""The only window that OpenAI has: ``24h``."""
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")


class BatchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[batches]``."""

    folder: Annotated[str, Meta(description="where files and results are kept; by default in the state folder")] = ""
    slots: Annotated[int, Meta(ge=1, description="the most lines at once at each engine")] = 4
    quiet: Annotated[Period, Meta(description="how long nobody has used a host before a batch loads a model on it")] = (
        30.0
    )
    swaps_per_hour: Annotated[
        int, Meta(ge=1, description="the most models that batches load on a host in an hour in which people use it")
    ] = 3
    max_lines: Annotated[int, Meta(ge=1, description="the most lines of a batch")] = 50_000
    max_batches: Annotated[int, Meta(ge=1, description="the most unfinished batches of a caller")] = 100
    max_files: Annotated[int, Meta(ge=1, description="the most files of a caller")] = 1000
    max_storage: Annotated[int, Meta(ge=1, description="the size of all files together", extra={"unit": "size"})] = (
        10 << 30
    )
    keep: Annotated[Period, Meta(description="how long files and ended batches are kept")] = 30 * 86_400.0


Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file. Times are seconds since the Unix epoch. ``owner``: the name of a caller; empty without keys."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int

    def shown(self) -> dict[str, Any]:
        """As a client gets it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class InputError(msgspec.Struct, frozen=True):
    """What is wrong with an input file. ``line`` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch. ``sender``: for whom its lines are sent; ``None`` without keys."""

    id: str
    sender: GatewayCaller | None
    endpoint: str
    input_file_id: str
    metadata: dict[str, str] | None
    created_at: int
    expires_at: int
    status: Status = "validating"
    total: int = 0
    errors: tuple[InputError, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None

    @property
    def owner(self) -> str:
        """The name of its caller; empty without keys."""
        return "" if self.sender is None else self.sender.name

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in ENDED

    def shown(self, completed: int, failed: int) -> dict[str, Any]:
        """As a client gets it, with so many lines done."""
        own = msgspec.structs.asdict(self)
        for name in ("sender", "total", "errors"):
            del own[name]
        errors = {"object": "list", "data": [msgspec.to_builtins(each) for each in self.errors]}
        return {
            **own,
            "object": "batch",
            "completion_window": "24h",
            "errors": errors if self.errors else None,
            "request_counts": {"total": self.total, "completed": completed, "failed": failed},
        }


def new_id(prefix: str) -> str:
    """An id that nobody can guess."""
    return prefix + os.urandom(16).hex()


def listed(rows: list[dict[str, Any]], has_more: bool) -> dict[str, Any]:
    """A page of a list."""
    return {
        "object": "list",
        "data": rows,
        "first_id": rows[0]["id"] if rows else None,
        "last_id": rows[-1]["id"] if rows else None,
        "has_more": has_more,
    }


def answered(request: str, status: int, body: bytes) -> bytes:
    """What stands in an output file for a line with this answer: on one line, however the engine wrote it."""
    try:
        said = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        said = body.decode(errors="replace")
    response = {"status_code": status, "request_id": request, "body": said}
    return msgspec.json.encode({"response": response, "error": None})


def not_run(code: str, message: str) -> bytes:
    """What stands in an error file for a line that was not run."""
    return msgspec.json.encode({"response": None, "error": {"code": code, "message": message}})
