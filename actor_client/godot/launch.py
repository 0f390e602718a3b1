"""Says what a Godot build is, and builds the command line of a game as the plug-in's own trainer does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actor_client.builds.executables import Engine
from actor_client.settings.godot import GodotSettings

GODOT: Final = Engine(
    "Godot",
    "Godot exported",
    "Project, Export",
    "project.godot",
    "is for the learner: rollcast serve {env}; this command takes only --env BUILD, with the executable that Godot exported",
)


@dataclass(frozen=True, slots=True)
class GodotLaunch:
    """Start options of one game.

    Attributes:
        executable: The path of the build's executable.
        settings: The user's settings.
        seed: Its seed.
    """

    executable: Path
    settings: GodotSettings
    seed: int

    def log_path(self, worker: int) -> None:
        """Returns None: the engine chooses where a game's log is."""
        del worker

    def command(self, worker: int, port: int) -> list[str]:
        """Returns the command line of a game.

        Args:
            worker: Unused: its seed is all that distinguishes a game.
            port: The port of its trainer on localhost.
        """
        del worker
        settings = self.settings
        words = [str(self.executable), f"--port={port}", f"--env_seed={self.seed}"]
        if not settings.viz:
            words += ["--disable-render-loop", "--headless"]
        if settings.fixed_fps is not None:
            words += ["--fixed-fps", str(settings.fixed_fps)]
        if settings.action_repeat is not None:
            words.append(f"--action_repeat={settings.action_repeat}")
        if settings.speedup is not None:
            words.append(f"--speedup={settings.speedup:g}")
        return [*words, *settings.env_args]
