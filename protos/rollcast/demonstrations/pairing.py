"""Finds the record that has the action of a step, by evidence of the recording itself.

It is one of two. ML-Agents' reader expects the action in the record of its observation, and this project writes it
there, as did ML-Agents' converter of recordings from before 0.14. Unity's recorder writes each record *before* the
decision is made, so it stores the action of the decision before, and that of a step is in the next record. Nothing in
a file says which it is.

Where actions are *missing* decides first. A converted file has none in its last record, and this project writes none
where an episode ends. Unity's recorder has none for the first record of an episode: it writes zeros, or the action
that its agent was left with by the end before. A recording that began during play has the action of an earlier
decision in its very first record. So what counts is how much more often first records are like this than others.

Then the *observations* decide. An action explains the change that follows its decision, given the observation that
it was made on. An action that explains the change after its record's observation belongs to that observation; one
that explains the change before it was chosen in the record before. Players hold a key for many decisions, so that
neighbors explain one another: each change is predicted with the neighbor's action first, and only what the record's
own action adds to that counts. If neither adds anything, the actions change nothing that can be seen, and belong to
the observations that they follow from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]
_AFTER_END = 0.9
"""Share of the first records after an end that have no action of their own, if the actions are late."""
_AT_START = 0.5
"""The same of an agent's very first record: as many recordings begin during play as before it."""
_LIKELY = 20.0
"""Times by which late actions must be likelier for the first records alone to decide."""
_SAMPLES = 2048
_FEWEST = 16
"""Fewest moments with a change before and after for which the observations are asked."""
_BLOCKS = 16
"""Parts of a recording whose means are compared; steps of one part depend on one another."""
_CLEAR = 3.0
"""Standard errors of the mean that count as a difference."""
_COLUMNS = 256
_COMPONENTS = 32
_ACTION_COLUMNS = 64
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Steps:
    """The N steps of R records; a record without a successor is no step.

    Attributes:
        rows: The record of each step's observation, int64 [N].
        next_rows: The record with its reward, its end and its next observation, int64 [N].
        firsts: Records before which their agent had no open episode, int64.
        ends_before: The record that ended the agent's episode before each of ``firsts``; -1 if there is none.
        lasts: Decisions at the end of the file without a recorded outcome, int64.
    """

    rows: Rows
    next_rows: Rows
    firsts: Rows
    ends_before: Rows
    lasts: Rows


def align(agents: Rows, done: NDArray[np.bool_]) -> Steps:
    """Finds the steps.

    Args:
        agents: The reporting agent of each record, int64 [R].
        done: The record ends an episode, bool [R].
    """
    waiting: dict[int, int] = {}
    ended: dict[int, int] = {}
    rows: list[int] = []
    next_rows: list[int] = []
    firsts: list[int] = []
    ends_before: list[int] = []
    for row, (agent, ends) in enumerate(zip(agents.tolist(), done.tolist(), strict=True)):
        before = waiting.pop(agent, None)
        if before is not None:
            rows.append(before)
            next_rows.append(row)
        elif not ends:
            firsts.append(row)
            ends_before.append(ended.get(agent, -1))
        if ends:
            ended[agent] = row
        else:
            waiting[agent] = row
    found = (rows, next_rows, firsts, ends_before, list(waiting.values()))
    return Steps(*(np.array(part, np.int64) for part in found))


@dataclass(frozen=True, slots=True)
class Paired:
    """Which record has the actions.

    Attributes:
        late: They are in the record after their observation (``next_record``).
        evidence: What decided, in words.
        is_sure: Something decided; without, the recording counts as one of Unity's recorder.
    """

    late: bool
    evidence: str
    is_sure: bool = True


def pair(
    steps: Steps,
    acted: Flags,
    actions: Reals,
    branches: Sequence[int],
    observations: Sequence[NDArray[Any]],
) -> Paired:
    """Decides for one file of R records.

    Args:
        steps: Its steps.
        acted: The record has an action, bool [R].
        actions: Continuous actions, then choices, float64 [R, n + b].
        branches: Number of choices of each of the b branches.
        observations: [R, *shape] each.
    """
    found = _by_missing(steps, acted) or _by_first_records(steps, actions)
    if found is None and len(observations):
        found = _by_observations(steps, actions, branches, observations)
    return found or Paired(late=True, evidence="nothing in the file tells", is_sure=False)


def _by_missing(steps: Steps, acted: Flags) -> Paired | None:
    alone = np.setdiff1d(steps.firsts, steps.rows)  # records that are no part of a step say nothing
    first = int((~acted[np.setdiff1d(steps.firsts, alone)]).sum())
    closing = np.setdiff1d(np.concatenate([steps.next_rows, np.setdiff1d(steps.lasts, alone)]), steps.rows)
    last = int((~acted[closing]).sum())
    if bool(first) == bool(last):
        return None
    if first:
        return Paired(late=True, evidence=f"{first} of {len(steps.firsts)} episodes begin without an action")
    return Paired(late=False, evidence=f"{last} of {len(closing)} episodes, or the file, end without an action")


def _by_first_records(steps: Steps, actions: Reals) -> Paired | None:
    """Compares first records with others, of which only those in the middle of an episode count."""
    inner = np.isin(steps.next_rows, steps.rows)
    before, others = steps.rows[inner], steps.next_rows[inner]
    zero = np.logical_not(actions.any(axis=1))
    repeats: Flags = (actions[others] == actions[before]).all(axis=1)
    begun = steps.ends_before >= 0
    kept = begun & (actions[steps.firsts] == actions[steps.ends_before]).all(axis=1)
    for likewise, usual, words in (
        (zero[steps.firsts], zero[others], "a zero action"),
        (zero[steps.firsts] | kept, zero[others] | repeats, "zeros or the action of the end before"),
    ):
        share = (usual.sum() + 0.5) / (len(usual) + 1)
        expected = np.where(begun, _AFTER_END, _AT_START)
        odds = np.where(likewise, expected / share, (1 - expected) / (1 - share))
        if np.log(odds).sum() > np.log(_LIKELY):
            return Paired(
                late=True,
                evidence=f"{int(likewise.sum())} of {len(likewise)} first records have {words}, "
                f"and {int(usual.sum())} of {len(usual)} others",
            )
    return None


def _by_observations(
    steps: Steps, actions: Reals, branches: Sequence[int], observations: Sequence[NDArray[Any]]
) -> Paired | None:
    """Compares what actions explain of the changes before and after their records."""
    inner = np.isin(steps.next_rows, steps.rows)
    after = dict(zip(steps.rows.tolist(), steps.next_rows.tolist(), strict=True))
    moments = np.array(
        [(a, b, after[b]) for a, b in zip(steps.rows[inner].tolist(), steps.next_rows[inner].tolist(), strict=True)],
        np.int64,
    )
    if len(moments) < _FEWEST:
        return None
    moments = moments[np.linspace(0, len(moments) - 1, min(_SAMPLES, len(moments))).astype(np.int64)]
    used, places = np.unique(moments, return_inverse=True)
    before, now, then = places.reshape(moments.shape).T
    seen, acts = _features(observations, used), _one_hot(actions[used], len(branches))
    if not seen.shape[1] or not acts.shape[1]:
        return None
    forward = _gain(np.hstack([seen[now], acts[then]]), acts[now], seen[then] - seen[now])
    backward = _gain(np.hstack([seen[now], acts[before]]), acts[now], seen[now] - seen[before])
    told = f"of what is left of a change, actions explain {_percent(forward)} after their record and {_percent(backward)} before it"
    if _clear(forward - backward) and forward.mean() > 0:
        return Paired(late=False, evidence=told)
    if _clear(backward - forward) and backward.mean() > 0:
        return Paired(late=True, evidence=told)
    nothing = np.empty((len(moments), 0))
    own, earlier = _gain(nothing, seen[now], acts[now]), _gain(nothing, seen[before], acts[now])
    if not (_clear(own - earlier) or _clear(earlier - own)):
        return None
    return Paired(
        late=bool(own.mean() < earlier.mean()),
        evidence=f"{told}; their own observation explains {_percent(own)} of an action, and the one before {_percent(earlier)}",
    )


def _features(observations: Sequence[NDArray[Any]], rows: Rows) -> Reals:
    """Returns the chosen rows of all observations as at most `_COMPONENTS` columns of variance 1."""
    parts = []
    for observation in observations:
        size = int(np.prod(observation.shape[1:]))
        edges = np.unique(np.linspace(0, size, min(size, _COLUMNS), endpoint=False).astype(np.int64))
        if len(edges):
            blocks = np.array_split(rows, 1 + len(rows) // 64)  # pictures as floats would not fit all at once
            parts.append(
                np.vstack(
                    [
                        np.add.reduceat(observation[block].reshape(len(block), size).astype(np.float64), edges, axis=1)
                        for block in blocks
                    ]
                )
            )
    columns = _standard(np.hstack(parts)) if parts else np.empty((len(rows), 0))
    if columns.shape[1] > _COMPONENTS:
        _, axes = np.linalg.eigh(columns.T @ columns)  # in the order of growing variance
        columns = _standard(columns @ axes[:, -_COMPONENTS:])
    return columns


def _one_hot(actions: Reals, branches: int) -> Reals:
    """Returns axes and the choices that occur as columns; of very many, the most varied ones."""
    size = actions.shape[1] - branches
    parts = [actions[:, :size]]
    parts += [
        (actions[:, [place]] == np.unique(actions[:, place])).astype(np.float64)
        for place in range(size, actions.shape[1])
    ]
    columns = np.hstack(parts)
    varied = np.sort(np.argsort(-columns.var(axis=0), kind="stable")[:_ACTION_COLUMNS])
    return _standard(columns[:, varied])


def _standard(columns: Reals) -> Reals:
    """Returns columns of mean 0 and variance 1, without those that are constant."""
    spread = columns.std(axis=0)
    varied = spread > 1e-9 * np.maximum(1.0, np.abs(columns).max(axis=0, initial=0.0))
    centered: Reals = (columns - columns.mean(axis=0))[:, varied] / spread[varied]
    return centered


def _gain(base: Reals, more: Reals, target: Reals) -> Reals:
    """Returns, for each row, by how much `more` reduces the squared error of a prediction, as a share of the mean error."""
    without, with_more = _errors(base, target), _errors(np.hstack([base, more]), target)
    gain: Reals = (without - with_more) / max(float(without.mean()), 1e-12)
    return gain


def _errors(inputs: Reals, target: Reals, folds: int = 4) -> Reals:
    """Returns the squared errors [B] of ridge regressions that did not see their part of the rows."""
    rows = np.hstack([inputs, np.ones((len(inputs), 1))])
    fold = np.arange(len(rows)) * folds // len(rows)
    errors = np.empty(len(rows))
    for held_out in range(folds):
        inside, outside = fold != held_out, fold == held_out
        gram = rows[inside].T @ rows[inside] + _RIDGE * inside.sum() * np.eye(rows.shape[1])
        weights = np.linalg.solve(gram, rows[inside].T @ target[inside])
        errors[outside] = ((target[outside] - rows[outside] @ weights) ** 2).sum(axis=1)
    return errors


def _clear(difference: Reals) -> bool:
    """Returns whether the mean of a difference is clearly above 0."""
    means = np.array([part.mean() for part in np.array_split(difference, min(_BLOCKS, len(difference) // 2))])
    return bool(means.mean() > _CLEAR * means.std(ddof=1) / np.sqrt(len(means)) + 1e-9)


def _percent(gain: Reals) -> str:
    return f"{max(0.0, float(gain.mean())):.1%}"
