"""Leaves out what needs a package that is not installed; ``test_packages.py`` says so."""

from __future__ import annotations

from test_packages import missing

collect_ignore = ["test_authz.py", "test_envoy.py", "test_ext_proc.py"] if missing() else []
