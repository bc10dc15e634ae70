"""Sends the reports that are due to the clients of waiting streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from enginehouse import Observer
from enginehouse.records import WaitingStream
from enginehouse.services import Configured
from enginehouse_progress.report import ProgressReport, form_for


class ProgressReports(Observer):
    """Reports to the clients of streams that have waited for longer than ``scheduling.progress_patience``."""

    def __init__(self) -> None:
        self._reports: dict[int, ProgressReport] = {}

    def streams_wait(self, configured: Configured) -> Callable[[Sequence[WaitingStream]], None] | None:
        scheduling = configured.table("scheduling")
        forms = {name: model.progress or scheduling.progress for name, model in configured.table("models").items()}
        wanted = {name: form for name, form in forms.items() if form != "off"}
        patience = scheduling.progress_patience

        def report(streams: Sequence[WaitingStream]) -> None:
            self._report(streams, wanted, patience)

        return report if wanted else None

    def _report(self, streams: Sequence[WaitingStream], forms: Mapping[str, str], patience: float) -> None:
        reports = {}
        for each in streams:
            form = form_for(each.path, forms.get(each.model))
            if form is not None and each.waited >= patience:
                reports[each.number] = report = self._reports.get(each.number) or ProgressReport(form)
                report.send(each)
        self._reports = reports
