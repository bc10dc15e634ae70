"""``[pull]``: where models come from, and where they are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import platformdirs

from enginehouse.config.section import Section, about


class PullSettings(Section, frozen=True):
    """Downloads of models: `enginehouse pull` and `models.*.source`."""

    hub: Annotated[
        str, about("address of the Hugging Face hub or a mirror; by default `$HF_ENDPOINT`, else the hub")
    ] = ""
    registry: Annotated[str, about("address of Ollama's registry or a mirror")] = "https://registry.ollama.ai"
    folder: Annotated[str, about("folder of the models; by default `enginehouse/models` in the user's data folder")] = (
        ""
    )

    @property
    def models_folder(self) -> Path:
        """The folder of the models."""
        return Path(self.folder).expanduser() if self.folder else platformdirs.user_data_path("enginehouse") / "models"
