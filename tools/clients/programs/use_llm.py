import os
import subprocess
import sys
from pathlib import Path

from tried import MODEL, URL, tried

folder = Path(os.environ["HOME"], "llm")
folder.mkdir(exist_ok=True)
entry = f"- model_id: here\n  model_name: {MODEL}\n  api_base: {URL}/v1\n"
(folder / "extra-openai-models.yaml").write_text(entry, "utf-8")


def ask(*flags):
    command = [sys.executable, "-m", "llm", "-m", "here", "--key", "none", *flags, "Say hello"]
    return subprocess.check_output(command, env={**os.environ, "LLM_USER_PATH": str(folder)}, timeout=60)


tried(text=lambda: ask("--no-stream"), stream=ask)
