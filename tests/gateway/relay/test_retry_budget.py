"""The retry budget, beside a list of everything that has happened."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from enginehouse.relay.retries import AT_LEAST, RetryBudget


class BudgetMachine(RuleBasedStateMachine):
    """A budget, and the times of the requests and the tries that it has counted."""

    @initialize(share=st.sampled_from((0.0, 0.1, 0.5, 1.0)), start=st.floats(0, 1e6))
    def begin(self, share: float, start: float) -> None:
        self.share = share
        self.budget = RetryBudget(share)
        self.now = start
        self.requests: list[float] = []
        self.tries: list[float] = []

    @rule(seconds=st.floats(0, 3) | st.floats(0, 60))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(count=st.integers(1, 300))
    def requests_come(self, count: int) -> None:
        self.budget.count(self.now, count)
        self.requests += [self.now] * count

    @rule(count=st.integers(1, 40))
    def requests_fail(self, count: int) -> None:
        for _ in range(count):
            if self.budget.has_room(self.now):
                self.budget.take(self.now)
                self.tries.append(self.now)

    @rule(count=st.integers(1, 40))
    def first_losses(self, count: int) -> None:
        """These are counted, and never refused."""
        for _ in range(count):
            self.budget.take(self.now)
        self.tries += [self.now] * count

    @invariant()
    def follows_the_last_ten_seconds(self) -> None:
        if not hasattr(self, "budget"):
            return
        fewest, most = self._since(10), self._since(11.001)
        if self.budget.has_room(self.now):
            assert fewest[1] < max(AT_LEAST, self.share * most[0])
        else:
            assert most[1] >= max(AT_LEAST, self.share * fewest[0])

    def _since(self, seconds: float) -> tuple[int, int]:
        after = self.now - seconds
        return sum(each > after for each in self.requests), sum(each > after for each in self.tries)


TestBudget = BudgetMachine.TestCase


def test_the_first_retries_of_a_quiet_gateway_are_allowed_and_come_back() -> None:
    budget = RetryBudget(0.1)
    for _ in range(AT_LEAST):
        assert budget.has_room(100.0)
        budget.take(100.0)
    assert not budget.has_room(100.0)
    assert not budget.has_room(109.9)
    assert budget.has_room(111.1)


def test_a_share_of_the_requests_is_allowed() -> None:
    budget = RetryBudget(0.1)
    budget.count(5.0, 5000)
    taken = 0
    while budget.has_room(6.0):
        budget.take(6.0)
        taken += 1
    assert taken == 500
