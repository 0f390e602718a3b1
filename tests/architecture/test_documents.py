"""Tests that documents agree with files and commands."""

import argparse
import importlib
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from rollcast.console import whole_parser
from rollcast.parsers import walk
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.envs.factory import make_env_batch
from actor_client.pettingzoo.factory import make_agents
from actor_client.unity.channels.framing import pack, unpack
from actor_client.unity.channels.plugins import load_plugins
from actor_client.unity.channels.side_channels import SideChannels
from learner.cli.cli import main
from learner.training.callbacks.base import CheckpointSaved, PolicyUpdated, RunEnded
from learner.training.callbacks.runner import CallbackRunner, load_callbacks
from tests.architecture.tree import ROOT, own_files, shown
from tests.documents import blocks, text_of

DOCUMENTS = tuple(shown(path) for path in own_files() if path.suffix == ".md")
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)")
FENCED = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"^(?:PIP_NO_INDEX=1 )?make ([a-z-]+)", flags=re.MULTILINE)
COMMAND = re.compile(r"^rollcast [a-z-]+.*$", flags=re.MULTILINE)
FLAG = re.compile(r"--[a-z][a-z-]*")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """Every link leads to an existing file or heading."""
    for target, anchor in LINK.findall(text_of(name)):
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), f"{name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_make_targets_exist() -> None:
    """Every `make x` in a document is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    for name in DOCUMENTS:
        fenced = FENCED.findall(text_of(name))
        quotes = re.findall(r"`([^`]+)`", FENCED.sub("", text_of(name)))
        assert set(TARGET.findall("\n".join([*fenced, *quotes]))) <= targets, name


def test_commands_of_the_documents_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command in a document exists, with its flags; one is that of the example package."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy" / "examples" / "rollcast_example"))
    lamps = argparse.ArgumentParser("rollcast act lamps")
    importlib.import_module("rollcast_example.actor").COMMAND.add_flags(lamps)
    known = {parser.prog: set(parser._option_string_actions) for parser in (*walk(whole_parser()), lamps)}
    lines = [line for name in DOCUMENTS for line in COMMAND.findall(text_of(name))]
    found = set()
    for line in lines:
        words = line.partition("#")[0].split()
        prog = next(name for count in (3, 2) if (name := " ".join(words[:count])) in known)
        found.add(prog)
        for flag in FLAG.findall(line.partition("#")[0]):
            assert flag in known[prog] | {"--help"} or "actor-args" in line, f"{prog} does not know {flag}: {line}"
    assert {"rollcast train", "rollcast serve", "rollcast act gym", "rollcast certs token", "rollcast join"} <= found


def in_current_folder(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes the one block of Python of the documents that defines a class into a module of the current folder."""
    mark = f"class {name.capitalize()}"
    (block,) = (block for page in DOCUMENTS for block in blocks(text_of(page), "python") if mark in block)
    (folder / f"{name}.py").write_text(block, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_the_callback_of_its_page_keeps_milestones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback on its page is found by name and works as described."""
    in_current_folder("milestones", tmp_path, monkeypatch)
    ((name, callback),) = load_callbacks(["milestones:Milestones"])
    runner = CallbackRunner(name, callback)
    for step, mean_return in ((1, None), (2, 150.0), (3, 190.0), (4, 310.0)):
        path = tmp_path / f"Walker-{step}.pt"
        path.write_text(str(mean_return))
        runner.tell(PolicyUpdated("Walker", step, step, step, mean_return))
        runner.tell(CheckpointSaved("Walker", step, path))
        runner.tell(CheckpointSaved("", step, tmp_path / "run_state.pt"))
    runner.end(RunEnded("signal", "", tmp_path), 60.0)
    assert (tmp_path / "over-100.pt").read_text() == "150.0"
    assert (tmp_path / "over-300.pt").read_text() == "310.0"
    assert runner.failures == 0


def test_the_side_channel_of_its_page_talks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The side channel on its page is found by name and exchanges messages with a player."""
    in_current_folder("chat", tmp_path, monkeypatch)
    (plugin,) = load_plugins(["chat:Chat"])
    channels = SideChannels(3, [plugin], first_of_run=True)
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())
    greetings = [payload for channel, payload in unpack(channels.take()) if channel == plugin.channel_id]
    assert greetings == [b"\x0f\x00\x00\x00hello, player 3"]
    channels.receive(pack([(plugin.channel_id, struct.pack("<f", 1.5))]))
    assert capsys.readouterr().out == "player 3 is 1.5 m high\n"


def test_the_agents_of_its_page_join_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment on its page, the second runner joins in the step in which the first one arrives."""
    in_current_folder("relay", tmp_path, monkeypatch)
    agents = make_agents("relay:Relay", {})
    report, seen = agents.reset(1, None), []
    while report.asking:
        seen.append([each.agent for each in report.asking])
        report = agents.step({each.agent: 1 for each in report.asking})
    assert seen == [["first"]] * 5 + [["second"]] * 5
    assert [(each.agent, each.terminated) for each in report.ended] == [("second", True)]


@pytest.mark.parametrize(("name", "vector"), [("Harvest", False), ("harvests", True)])
def test_the_environment_of_its_page_is_seen_and_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, vector: bool
) -> None:
    """The environment on its page works as described, and equal seeds repeat it."""
    in_current_folder("harvest", tmp_path, monkeypatch)
    batch = make_env_batch(f"harvest:{name}", num_envs=3, vector=vector)
    assert {spec.name: (spec.kind.name, spec.shape) for spec in batch.spec.observations} == {
        "board": ("IMAGE", (2, 5, 5)),
        "fruits": ("ENTITIES", (4, 3)),
    }
    assert batch.spec.action.discrete_branches == (4, 2)
    first = [values.copy() for values in batch.reset([1, 2, 3])]
    assert all((one == other).all() for one, other in zip(first, batch.reset([1, 2, 3]), strict=True))
    generator, picked, ends = np.random.default_rng(1), 0.0, list[dict[str, float]]()
    for _ in range(200):
        assert batch.action_masks is not None
        walks = [generator.choice(np.flatnonzero(mask[:4])) for mask in batch.action_masks]
        result = batch.step(None, np.stack([walks, batch.action_masks[:, 5]], axis=1).astype(np.int32))
        picked += float(result.rewards.sum())
        ends += map(dict, result.infos)
    batch.close()
    assert picked > 0
    assert ends
    assert all(set(info) == {"picked"} for info in ends)


@pytest.mark.parametrize(
    "source",
    [
        "README.md",
        "learner/README.md",
        "learner/training/matches/evaluation.md",
        "learner/training/lockstep/README.md",
        "actor_client/envs/README.md",
        "deploy/runs",
        "deploy/examples",
    ],
)
def test_run_files_are_valid(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every run file of the pages and examples passes `check-config` without a warning."""
    if source.endswith(".md"):
        printed = blocks(text_of(source), "yaml")
        assert printed
        run_files = [tmp_path / f"{number}.yaml" for number in range(len(printed))]
        for run_file, block in zip(run_files, printed, strict=True):
            run_file.write_text(block, encoding="utf-8")
    else:
        run_files = sorted(set((ROOT / source).rglob("*.yaml")) - {ROOT / "deploy/runs/kustomization.yaml"})
        assert run_files
    monkeypatch.chdir(tmp_path)
    for run_file in run_files:
        code, errors = main(["check-config", str(run_file)]), capsys.readouterr().err
        # Demonstrations are recorded first, as the files say.
        to_record = r"serve would refuse: \S+\.demo_path: \S+ does not exist"
        said = [line for line in errors.splitlines() if not re.match(f"note: |{to_record}", line)]
        assert (code, said) == (0, []), f"{run_file}: {errors}"
