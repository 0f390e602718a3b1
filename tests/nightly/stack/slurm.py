"""Runs a Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd, all real."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.nightly.stack.machine import CommandError, run, wait_until
from tests.ports import reserve_ports

NODES = ("one", "two")
CPUS = 4
"""Processors that each node says it has."""
_CONFIGURATION = """
ClusterName=rollcast-test
SlurmctldHost=localhost
SlurmctldPort={controller}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=10
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A running cluster.

    Args:
        folder: Its configuration, state and logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def command(self, *words: str, folder: Path) -> str:
        """Runs a command of Slurm in a folder and returns its standard output."""
        return run(words, environment=self.environment, folder=folder)

    def state(self, job: str) -> str:
        """Returns the state of a job, as ``RUNNING``."""
        told = self.command("scontrol", "--oneliner", "show", "job", job, folder=self._folder)
        fields = dict(word.split("=", 1) for word in told.split() if "=" in word)
        return fields["JobState"]

    def said(self) -> str:
        """Returns the ends of the logs."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in self._folder.glob("*.log"))


@contextmanager
def cluster(folder: Path) -> Iterator[Slurm]:
    """Runs a cluster for a block; needs root."""
    folder.mkdir()
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o400)
    lines = [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={reserve_ports()} CPUs={CPUS}"
        for name in NODES
    ]
    (folder / "state").mkdir()
    text = _CONFIGURATION.format(folder=folder, controller=reserve_ports(), nodes="\n".join(lines))
    (folder / "slurm.conf").write_text(text)
    slurm = Slurm(folder)
    munged = ["munged", "--foreground", f"--socket={folder}/munge.socket", f"--key-file={key}", "--force"]
    munged += [f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munged.log"]
    programs = [munged, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", name] for name in NODES)]
    with ExitStack() as stack:
        for number, program in enumerate(programs):
            log = stack.enter_context((folder / f"{number}-{program[0]}.log").open("wb"))
            process = subprocess.Popen(
                program, env={**os.environ, **slurm.environment}, stdout=log, stderr=subprocess.STDOUT
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            if program is munged:
                wait_until((folder / "munge.socket").exists, "munged listens", seconds=30, pause_seconds=0.1)

        def is_up() -> bool:
            try:
                states = slurm.command("sinfo", "--noheader", "--format=%t", "--Node", folder=folder).split()
            except CommandError:
                return False
            return states == ["idle"] * len(NODES)

        wait_until(is_up, f"both nodes are idle\n{slurm.said()}", seconds=60)
        yield slurm
