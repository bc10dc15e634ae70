"""Where a request has been tried, and where it may still go."""

from __future__ import annotations

from typing import NamedTuple

_MOST_TIMES_SENT_BACK = 10


class Tries(NamedTuple):
    """What has become of a request so far.

    ``failed``: replicas that failed it, which are not asked again. ``resent``: replicas whose engine ended by itself
    when they had the request, which are asked once more. ``sent_back``: how often an engine ended before it had it.
    """

    failed: tuple[str, ...] = ()
    resent: tuple[str, ...] = ()
    sent_back: int = 0

    def elsewhere(self, replica: str, max_retries: int) -> Tries | None:
        """After ``replica`` failed it; ``None`` if it may not be tried again."""
        return self._replace(failed=(*self.failed, replica)) if self._may_retry(max_retries) else None

    def resend(self, replica: str, max_retries: int) -> Tries | None:
        """After the engine of ``replica`` ended with it: once more, for the request itself may be what ended it."""
        if replica in self.resent or not self._may_retry(max_retries):
            return None
        return self._replace(resent=(*self.resent, replica))

    def send_back(self) -> Tries | None:
        """After an engine ended that had not got it yet."""
        return self._replace(sent_back=self.sent_back + 1) if self.sent_back < _MOST_TIMES_SENT_BACK else None

    def _may_retry(self, max_retries: int) -> bool:
        return len(self.failed) + len(self.resent) < max_retries
