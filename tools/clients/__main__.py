"""Tries real clients against the gateway, and writes what works into ``docs/how-to/clients.md``.

::

    python -m tools.clients install    brings the clients from pip and npm into the user's cache, which takes minutes
    python -m tools.clients            tries them in front of both kinds of engines, and writes the table
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support.paths import DOCS
from tests.support.real_engines import engines_folder

FOLDER = Path(os.environ.get("ENGINEHOUSE_CLIENTS") or engines_folder().parent / "clients")
"""Has virtual environments and folders of npm's."""
PYTHON, NPM = FOLDER / "py" / "bin" / "python", FOLDER / "npm" / "node_modules"
PROGRAMS = Path(__file__).parent / "programs"
LIBRARIES = ("langchain-openai", "langchain-anthropic", "llama-index-llms-openai-like", "litellm", "instructor", "llm")
FROM_PIP = {
    "py": ("openai", "anthropic", "ollama", *LIBRARIES),
    "aider": ("aider-chat",),
    "open-webui": ("open-webui",),
}
"""The packages of each virtual environment: programs that want versions of their own are alone."""
FROM_NPM = ("@anthropic-ai/claude-code", "@openai/codex", "ollama", "@continuedev/cli", "cline")
N8N = {"private": True, "dependencies": {"n8n": "*", "node": "24"}, "overrides": {"xlsx": "0.18.5"}}
"""n8n wants a new Node.js, and takes a package for spreadsheets from elsewhere than npm."""
CLIENTS: Mapping[str, str] = {
    "Claude Code": "use_claude_code.sh",
    "Codex": "use_codex.sh",
    "Open WebUI": "use_open_webui.py",
    "Continue": "use_continue.sh",
    "Cline": "use_cline.sh",
    "aider": "use_aider.sh",
    "OpenAI's SDK": "use_openai.py",
    "Anthropic's SDK": "use_anthropic.py",
    "ollama-python": "use_ollama.py",
    "ollama-js": "use_ollama_js.mjs",
    "LangChain": "use_langchain.py",
    "LlamaIndex": "use_llamaindex.py",
    "litellm": "use_litellm.py",
    "instructor": "use_instructor.py",
    "`llm`": "use_llm.py",
    "n8n": "use_n8n.sh",
    "curl": "use_curl.sh",
}
OWN_PYTHON = {"Open WebUI": "open-webui"}
MODEL = "sim-large"
_PAGE = DOCS / "how-to" / "clients.md"
_RESULT = re.compile(r"[a-z_]+ \S")
"""Clients print other things too."""
_BEGIN, _END = "<!-- made by tools/clients -->\n", "<!-- end -->\n"


def install() -> None:
    """Bring the clients."""
    for name, packages in FROM_PIP.items():
        subprocess.run([sys.executable, "-m", "venv", FOLDER / name], check=True)
        subprocess.run([FOLDER / name / "bin" / "python", "-m", "pip", "install", "--quiet", *packages], check=True)
    npm = ("npm", "install", "--no-fund", "--no-audit", "--prefix")
    subprocess.run([*npm, FOLDER / "npm", *FROM_NPM], check=True)
    (FOLDER / "n8n").mkdir(exist_ok=True)
    (FOLDER / "n8n" / "package.json").write_text(json.dumps(N8N), "utf-8")
    subprocess.run([*npm, FOLDER / "n8n"], check=True)


@contextmanager
def gateways() -> Iterator[Mapping[str, str]]:
    """The addresses of ``make run``'s gateway, and of one whose engine speaks only OpenAI's chats."""
    with SimEngine(MODEL, mean_length=64, max_model_len=131072) as engine:
        backend = f'[backends.one]\ndriver = "openai"\nurl = "{engine.url}"\n'
        only = f"{backend}[backends.one.models.{MODEL}]\ncontext_length = 131072\n"
        with RunningGateway(None) as simulated, RunningGateway(only) as chats:
            chats.until_health(one="healthy")
            yield {"`make run`": simulated.url, "an engine with OpenAI's chats only": chats.url}


def try_client(client: str, url: str) -> dict[str, str]:
    """What ``client`` was asked to do at the gateway ``url``, with ``ok`` or what went wrong."""
    program = PROGRAMS / CLIENTS[client]
    python = FOLDER / OWN_PYTHON.get(client, "py") / "bin" / "python"
    interpreter = {".py": str(python), ".mjs": "node", ".sh": "bash"}[program.suffix]
    with TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "GATEWAY": url, "MODEL": MODEL}
        env |= {"NPM": str(NPM), "FOLDER": str(FOLDER)}
        if program.suffix == ".mjs":  # modules are looked for beside the program
            Path(home, "node_modules").symlink_to(NPM)
            Path(home, program.name).write_text(program.read_text("utf-8"), "utf-8")
            program = Path(home, program.name)
        ran = subprocess.run(
            [interpreter, str(program)], env=env, cwd=home, capture_output=True, text=True, timeout=600
        )
    lines = [line.partition(" ") for line in ran.stdout.splitlines() if _RESULT.match(line)]
    return {name: said for name, _, said in lines} or {"start": ran.stderr.strip()[-300:]}


def matrix() -> str:
    """The table of what works."""
    with gateways() as found:
        rows = [f"| client | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
        for client in CLIENTS:
            cells = [_cell(try_client(client, url)) for url in found.values()]
            rows.append(f"| {client} | {' | '.join(cells)} |")
            print(rows[-1], flush=True)
    return "\n".join(rows) + "\n"


def _cell(tried: Mapping[str, str]) -> str:
    good = [name for name, said in tried.items() if said == "ok"]
    bad = [f"not {name}: {said}" for name, said in tried.items() if said != "ok"]
    return "; ".join([", ".join(good), *bad] if good else bad)


def main() -> None:
    """``install``, or try them all."""
    if sys.argv[1:] == ["install"]:
        install()
        return
    before, rest = _PAGE.read_text("utf-8").split(_BEGIN)
    behind = rest.split(_END)[1]
    _PAGE.write_text(f"{before}{_BEGIN}\n{matrix()}\n{_END}{behind}", "utf-8")


if __name__ == "__main__":
    main()
