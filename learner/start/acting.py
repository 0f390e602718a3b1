"""Serves finished policies: the service in the main thread's event loop, the parts of a run that acts in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from rollcast.auth import TokenRow
from rollcast.enums import AssignmentRole, Purpose
from rollcast.errors import WireError
from rollcast.v1 import policy_pb2

from learner.service.run.front import Front, Served, Site
from learner.service.view.display import Display
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.training.run.context import RunContext
from learner.training.run.run import Acting, Run
from learner.training.run.statistics import Statistics
from learner.training.trainers.parts import RunPart


def act(
    context: RunContext,
    parts: Sequence[RunPart],
    announce: Callable[[BoundAddresses, str], None],
    *,
    saved: Mapping[str, Any] | None,
    role: AssignmentRole | None = None,
    acting: Acting = Acting(),  # noqa: B008 - a frozen value
    snapshots: SnapshotFiles | None = None,
    site: Site | None = None,
    own_tokens: Sequence[TokenRow] = (),
    takes_signals: bool = True,
) -> Served:
    """Runs a run that does not train from start to end, and returns how it ended.

    Args:
        context: Context of the run.
        parts: What it does.
        announce: Called with the learner's addresses and the link to the status page.
        saved: Behaviors of the saved run, which actors must declare the same; None if it has none.
        role: What actors do without a match; None lets them wait for one, if their behavior has self-play.
        acting: How the policies act.
        snapshots: Policies of players, which actors fetch.
        site: The status page; None for none.
        own_tokens: Tokens of actors that the command itself starts.
        takes_signals: Whether signals of the process stop the run.

    Raises:
        UserError: The run file no longer has a saved behavior, the saved run is damaged, an address is unavailable, or a
            part failed.
    """
    options, task = context.options, None
    if role is not None:
        purpose = Purpose.EVALUATE if role is AssignmentRole.LEARN else Purpose.UNSPECIFIED
        task = policy_pb2.BehaviorAssignment(role=policy_pb2.AssignmentRole.ValueType(role), purpose=purpose)
    front = Front(
        options,
        context.link,
        run_id=context.run_id,
        generation=context.generation,
        seed=context.seed,
        task=task,
        trains=False,
        site=site,
        snapshots=snapshots,
        own_tokens=own_tokens,
        takes_signals=takes_signals,
    )
    if saved is not None:
        _restore_behaviors(front, saved)
    statistics = Statistics(context.meters)
    run = Run(context, acting)
    run.take((*parts, statistics), statistics)

    def begin(bound: BoundAddresses, page: str) -> None:
        announce(bound, page)
        run.start()

    try:
        display = Display(None, options.rollcast.summary_seconds)
        return asyncio.run(front.run(context.lessons.assignment(), begin, display))
    except BaseException as error:
        run.give_up(error)
        raise


def _restore_behaviors(front: Front, saved: Mapping[str, Any]) -> None:
    try:
        front.behaviors.load_state_dict(saved)
    except (AttributeError, DecodeError, KeyError, TypeError, ValueError, WireError) as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"the behaviors in the run state are inconsistent ({type(error).__name__}: {error}); restore another copy "
            "of run_state.pt",
        ) from error
