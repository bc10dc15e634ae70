"""Reads the model of a form (``multipart/form-data``, RFC 7578) while the form arrives."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers
from enginehouse.routing.body.read import check_model_name, check_plain

_FIELD = "model"
_LARGEST_HEAD = 16 * 1024
"""In bytes: of one part's headers, and of the value of ``model``."""
_MOST_PARTS = 1000
"""As common frameworks have it: to read many takes long, and nothing else runs meanwhile."""
_END_OF_HEAD = b"\r\n\r\n"
_CLOSES = b"--"
_BREAK = b"\r\n"
_IN_CONTENT, _IN_HEAD, _CLOSED = range(3)
_PARAMETER: Final = re.compile(rb';\s*([^\s=;"]+)\s*=\s*(?:"([^"\\]*(?:\\.?[^"\\]*)*)|([^;]*))', re.DOTALL)
"""One of a header's, whose value may be quoted (RFC 9110, 5.6.6). It is read in a time linear in its length: the email
package took a quarter of a second for 16 KiB of semicolons in quotes."""
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")
_DISPOSITION: Final = re.compile(rb"^content-disposition[ \t]*:(.*)", re.IGNORECASE | re.MULTILINE)


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
    return _content_type(headers).partition(b";")[0].strip().lower() == b"multipart/form-data"


class FormReader:
    """Finds the field ``model`` in a form that arrives in pieces. Keeps no more of it than the field needs.

    ``model`` is ``None`` until the field has arrived. Raises ``InvalidRequest`` if ``headers`` name no boundary, and
    ``EncodedBody`` for an encoded form.
    """

    __slots__ = ("_at", "_delimiter", "_headers", "_is_model", "_parts", "_read", "_state", "_unread", "model")

    def __init__(self, headers: Headers) -> None:
        boundary = _parameter(_content_type(headers), b"boundary")
        if not boundary:
            raise InvalidRequest("The Content-Type of the form has no 'boundary' (RFC 7578, 4.1)")
        self.model: FormModel | None = None
        self._delimiter = b"\r\n--" + boundary
        self._headers = headers
        self._unread = _BREAK  # the first delimiter needs no line break before it
        self._read = self._parts = 0
        self._at = -len(_BREAK)
        self._state = _IN_CONTENT
        self._is_model = False

    def feed(self, piece: bytes) -> None:
        """Read the next piece. Raises ``InvalidRequest`` for what is no form, a second model, or one that cannot be."""
        if self._state != _CLOSED:
            if self._at < 0:
                check_plain(self._headers, (self._unread + piece)[len(_BREAK) :])
            self._unread += piece
            while self._read_head() if self._state == _IN_HEAD else self._read_content():
                pass
            self._unread, self._read = self._unread[self._read :], 0  # once: to cut it for each part would take long

    def found(self) -> FormModel:
        """The model of a form that has arrived. Raises ``InvalidRequest`` if there is none."""
        if self.model is None:
            raise InvalidRequest("The form has no field 'model': name the model to use", param=_FIELD)
        return self.model

    def _read_content(self) -> bool:
        """Read to the next delimiter; whether it is here."""
        end = self._unread.find(self._delimiter, self._read)
        if end < 0:
            if not self._is_model:
                self._skip_to(max(self._read, len(self._unread) - len(self._delimiter) + 1))
            elif len(self._unread) - self._read > _LARGEST_HEAD:
                raise InvalidRequest("'model' is too long: name the model to use", param=_FIELD)
            return False
        if self._is_model:
            self._take(self._unread[self._read : end])
        self._skip_to(end + len(self._delimiter))
        self._state = _IN_HEAD
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise InvalidRequest(f"The form has more than {_MOST_PARTS} parts")
        return True

    def _read_head(self) -> bool:
        """Read the head of a part; whether there is one, and it is here."""
        if self._unread.startswith(_CLOSES, self._read):
            self._state = _CLOSED
            self._unread = b""
            return False
        end = self._unread.find(_END_OF_HEAD, self._read)
        if (end if end >= 0 else len(self._unread)) - self._read > _LARGEST_HEAD:
            raise InvalidRequest("The form has a part without an end of its headers")
        if end < 0:
            return False
        self._is_model = _name(self._unread[self._read : end]) == _FIELD.encode()
        if self._is_model and self.model is not None:
            raise InvalidRequest("The form has several fields 'model': name one model, once", param=_FIELD)
        self._skip_to(end + len(_END_OF_HEAD))
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

    def _skip_to(self, place: int) -> None:
        self._at += place - self._read
        self._read = place


def _content_type(headers: Headers) -> bytes:
    return next((value for name, value in headers if name == b"content-type"), b"")


def _name(head: bytes) -> bytes | None:
    """The name of the field whose part has this ``head``. Raises ``InvalidRequest`` if it has several."""
    lines = _DISPOSITION.findall(_FOLD.sub(b" ", head.strip()))
    return _parameter(b";".join(lines), b"name")


def _parameter(header: bytes, name: bytes) -> bytes | None:
    """The value of a parameter of ``header``; ``None`` if it has none.

    Raises ``InvalidRequest`` for one in several parts, or encoded (RFC 2231), which readers understand differently.
    """
    found: list[bytes] = []
    for each in _PARAMETER.finditer(header):
        key, quoted, plain = each[1].lower(), each[2], each[3]
        if key == name:
            found.append(plain.strip() if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL))
        if len(found) > 1 or key.startswith(name + b"*"):
            raise InvalidRequest(f"'{name.decode()}' must stand once and plainly in a header of a form (RFC 7578, 4.2)")
    return found[0] if found else None
