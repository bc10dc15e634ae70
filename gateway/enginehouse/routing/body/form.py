"""Reads the model of a form (``multipart/form-data``, RFC 7578) while the form arrives."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import collapse_rfc2231_value
from typing import NamedTuple

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.routing.body.read import check_model_name, check_plain

_FIELD = "model"
_LARGEST_HEAD = 16 * 1024
"""In bytes: of one part's headers, and of the value of ``model``."""
_END_OF_HEAD = b"\r\n\r\n"
_CLOSES = b"--"
_BREAK = b"\r\n"
_IN_CONTENT, _IN_HEAD, _CLOSED = range(3)


class FormModel(NamedTuple):
    """The field ``model`` of a form: its value, and the bytes of the form at which that starts and ends."""

    name: str
    start: int
    end: int

    def replaced(self, form: bytes, name: str) -> bytes:
        """``form`` with ``name`` as its model. It must begin with the first byte and reach to ``end``."""
        return form if name == self.name else b"".join((form[: self.start], name.encode(), form[self.end :]))


def is_form(headers: Headers) -> bool:
    """Whether the headers declare the body a form."""
    return _content_type(headers).get_content_type() == "multipart/form-data"


class FormReader:
    """Finds the field ``model`` in a form that arrives in pieces. Keeps no more of it than the field needs.

    ``model`` is ``None`` until the field has arrived. Raises ``InvalidRequest`` if ``headers`` name no boundary, and
    ``EncodedBody`` for an encoded form.
    """

    __slots__ = ("_at", "_delimiter", "_headers", "_is_model", "_state", "_unread", "model")

    def __init__(self, headers: Headers) -> None:
        boundary = _content_type(headers).get_boundary()
        if not boundary:
            raise InvalidRequest("The Content-Type of the form has no 'boundary' (RFC 7578, 4.1)")
        self.model: FormModel | None = None
        self._delimiter = b"\r\n--" + boundary.encode("latin-1", "replace")
        self._headers = headers
        self._unread = _BREAK  # the first delimiter needs no line break before it
        self._at = -len(_BREAK)
        self._state = _IN_CONTENT
        self._is_model = False

    def feed(self, piece: bytes) -> None:
        """Read the next piece. Raises ``InvalidRequest`` for a second model, and for one that no model can have."""
        if self._state != _CLOSED:
            if self._at < 0:
                check_plain(self._headers, (self._unread + piece)[len(_BREAK) :])
            self._unread += piece
            while self._read_head() if self._state == _IN_HEAD else self._read_content():
                pass

    def found(self) -> FormModel:
        """The model of a form that has arrived. Raises ``InvalidRequest`` if there is none."""
        if self.model is None:
            raise InvalidRequest("The form has no field 'model': name the model to use", param=_FIELD)
        return self.model

    def _read_content(self) -> bool:
        """Read to the next delimiter; whether it is here."""
        end = self._unread.find(self._delimiter)
        if end < 0:
            if not self._is_model:
                self._skip(max(0, len(self._unread) - len(self._delimiter) + 1))
            elif len(self._unread) > _LARGEST_HEAD:
                raise InvalidRequest("'model' is too long: name the model to use", param=_FIELD)
            return False
        if self._is_model:
            self._take(self._unread[:end])
        self._skip(end + len(self._delimiter))
        self._state = _IN_HEAD
        return True

    def _read_head(self) -> bool:
        """Read the head of a part; whether there is one, and it is here."""
        if self._unread.startswith(_CLOSES):
            self._state = _CLOSED
            self._unread = b""
            return False
        end = self._unread.find(_END_OF_HEAD)
        if end < 0:
            if len(self._unread) > _LARGEST_HEAD:
                raise InvalidRequest("The form has a part without an end of its headers")
            return False
        self._is_model = _name(self._unread[:end]) == _FIELD
        if self._is_model and self.model is not None:
            raise InvalidRequest("The form has several fields 'model': name one model, once", param=_FIELD)
        self._skip(end + len(_END_OF_HEAD))
        self._state = _IN_CONTENT
        return True

    def _take(self, value: bytes) -> None:
        try:
            name = value.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"'model' is not valid UTF-8: {error.reason}", param=_FIELD) from None
        check_model_name(name)
        self.model = FormModel(name, self._at, self._at + len(value))
        self._is_model = False

    def _skip(self, count: int) -> None:
        self._unread = self._unread[count:]
        self._at += count


def _content_type(headers: Headers) -> Message:
    message = Message()
    message["content-type"] = next((value for name, value in headers if name == b"content-type"), b"").decode("latin-1")
    return message


def _name(head: bytes) -> str:
    """The name of the field whose part has this ``head``; empty if it has none."""
    name = BytesHeaderParser().parsebytes(head.strip()).get_param("name", "", header="content-disposition")
    return collapse_rfc2231_value(name) if name else ""
