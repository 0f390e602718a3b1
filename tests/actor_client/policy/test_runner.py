"""Tests that received policies are validated and act as their distributions say."""

from __future__ import annotations

import gc
import hashlib
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from rollcast.enums import Distribution, PolicyFormat, Squash
from rollcast.specs import BehaviorSpec, ObservationSpec
from rollcast.transforms import ActionTransform

from actor_client.policy.actions import Actions, PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from tests.actor_client.policy import models

OBSERVATIONS = [np.random.default_rng(5).normal(size=(6, models.OBSERVED)).astype(np.float32)]


def load(behavior: BehaviorSpec, model: onnx.ModelProto | None = None, **changes: Any) -> Policy:
    """Opens a model under a description that fits but for the changes."""
    description, payload = models.described(model or models.graph(behavior), behavior, **changes)
    return Policy.load(description, payload, behavior)


def noise_for(behavior: BehaviorSpec, agents: int = 6) -> Noise:
    """Returns random numbers of the right shapes."""
    action = behavior.action
    return Noise(1, 0, agents=agents, continuous_size=action.continuous_size, logits_size=action.mask_size)


def linear(size: int, seed: int) -> Any:
    """Returns what the test graphs compute, in float64."""
    return OBSERVATIONS[0].astype(np.float64) @ models.weights((models.OBSERVED, size), seed)


def test_continuous_actions() -> None:
    """Draws follow mean, log_std and the noise; log-probabilities are the Gaussian's; the transform comes last."""
    behavior = models.spec(continuous=2)
    actions = load(behavior).act(OBSERVATIONS, None, noise_for(behavior))

    mean, log_std = linear(2, 1), linear(2, 2)
    raw = mean + np.exp(log_std) * noise_for(behavior).normal()
    assert actions.continuous is not None
    assert actions.environment_continuous is not None
    assert actions.discrete is None
    np.testing.assert_allclose(actions.continuous, raw, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(actions.environment_continuous, raw.clip(-3, 3) / 3, rtol=1e-4, atol=1e-5)
    expected = -((raw - mean) ** 2) / (2 * np.exp(2 * log_std)) - log_std - np.log(np.sqrt(2 * np.pi))
    np.testing.assert_allclose(actions.log_prob, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("in_graph", [True, False])
def test_masks_hold_whether_or_not_the_graph_takes_them(in_graph: bool) -> None:
    """Only allowed choices are made, with and without a mask input in the graph."""
    behavior = models.spec(branches=(3, 2))
    policy = load(behavior, models.graph(behavior, masked=in_graph))
    masks = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 1, 1]] * 3, np.uint8)
    noise = noise_for(behavior)
    scores = np.where(masks, linear(5, 3), -np.inf)[:, :3]
    expected = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    for _ in range(100):
        actions = policy.act(OBSERVATIONS, masks, noise)
        assert actions.discrete is not None
        assert masks[np.arange(6), actions.discrete[:, 0]].all()
        assert masks[np.arange(6), 3 + actions.discrete[:, 1]].all()
        chosen = expected[np.arange(6), actions.discrete[:, 0]]
        np.testing.assert_allclose(actions.log_prob[:, 0], chosen, rtol=1e-4, atol=1e-4)

    free = policy.act(OBSERVATIONS, None, noise)
    assert np.isfinite(free.log_prob).all()


def test_a_deterministic_policy_takes_the_mode() -> None:
    """The same observations give the same actions: the mean and the likeliest choices."""
    behavior = models.spec(continuous=1, branches=(3,))
    policy = load(behavior, deterministic=True)
    noise = noise_for(behavior)

    first, second = policy.act(OBSERVATIONS, None, noise), policy.act(OBSERVATIONS, None, noise)
    assert first.continuous is not None
    assert first.discrete is not None
    np.testing.assert_array_equal(first.continuous, second.continuous)
    np.testing.assert_allclose(first.continuous, linear(1, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first.discrete[:, 0], linear(3, 3).argmax(axis=1))


def test_earlier_actions_stay_as_they_were() -> None:
    """Returned arrays are not overwritten by the next call, nor by a call for another number of agents."""
    behavior = models.spec(continuous=2, branches=(3,))
    policy, noise = load(behavior), noise_for(behavior)
    first = policy.act(OBSERVATIONS, None, noise)
    copies = [None if part is None else part.copy() for part in first]
    policy.act([OBSERVATIONS[0] * 2], None, noise)
    policy.act([OBSERVATIONS[0][:2]], None, noise_for(behavior, agents=2))

    for part, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": bytes(32)}, "SHA-256"),
        ({"size_bytes": 5}, "5 were announced"),
        ({"memory_size": 8, "memory_stride": 4}, "recurrent_in"),
        ({"format": PolicyFormat.SAFETENSORS}, "runs ONNX"),
        ({"continuous_distribution": Distribution.GAUSSIAN_CLIP3}, "continuous distribution"),
        ({"discrete_distribution": Distribution.UNSPECIFIED}, "discrete distribution"),
        ({"inputs": ("obs_0", "obs_1")}, "are announced"),
        ({"inputs": ("obs_0", "action_masks")}, "its inputs are"),
        ({"action_transform": ActionTransform(Squash.NONE, (0.0,), (1.0,))}, "1 bounds for 0 axes"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    """The error names the version and the reason in one line."""
    with pytest.raises(PolicyUnusable, match=message) as caught:
        load(models.spec(branches=(3, 2)), **changes)
    assert "policy Tiny version 7 of generation 3" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_graph_of_another_behavior_is_refused() -> None:
    """The error names shapes, outputs, types or batch sizes that differ from the spec."""
    behavior = models.spec(branches=(3, 2))
    for other, message in (
        (models.graph(models.spec(branches=(3, 3))), "output logits has shape"),
        (models.graph(models.spec(continuous=2)), "its outputs are"),
    ):
        with pytest.raises(PolicyUnusable, match=message):
            load(behavior, other)
    wide = replace(behavior, observations=(ObservationSpec("state", np.dtype(np.float32), (4,)),))
    bytes_ = replace(behavior, observations=(ObservationSpec("state", np.dtype(np.uint8), (3,)),))
    for wanted, message in ((wide, "input obs_0 has shape"), (bytes_, "input obs_0 is tensor.float.")):
        with pytest.raises(PolicyUnusable, match=message):
            load(wanted, models.graph(behavior))
    fixed = models.graph(behavior)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    with pytest.raises(PolicyUnusable, match="input obs_0 has shape"):
        load(behavior, fixed)


def test_what_is_no_model_is_refused() -> None:
    """Random bytes, unknown operators and external data are refused."""
    behavior = models.spec(branches=(3, 2))
    description, payload = models.described(models.graph(behavior), behavior)
    for junk in (b"\x00\x01junk" * 10, b"", payload[: len(payload) // 2]):
        fitting = replace(description, size_bytes=len(junk), sha256=hashlib.sha256(junk).digest())
        with pytest.raises(PolicyUnusable):
            Policy.load(fitting, junk, behavior)

    unknown = models.graph(behavior)
    unknown.graph.node[0].op_type = "Telepathy"
    with pytest.raises(PolicyUnusable, match=r"ONNX Runtime cannot open it.*Telepathy"):
        load(behavior, unknown)

    outside = models.graph(behavior)
    outside.graph.initializer[0].data_location = TensorProto.EXTERNAL
    with pytest.raises(PolicyUnusable, match="separate file"):
        load(behavior, outside)


def test_outputs_that_are_not_finite_are_refused() -> None:
    """A policy whose output for zeros is not finite is refused."""
    behavior = models.spec(continuous=1)
    with pytest.raises(PolicyUnusable, match="output mean is not finite"):
        load(behavior, models.graph(behavior, bias=float("inf")))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what numpy says of infinity; see endings.run_command
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("sizes", [{"continuous": 2}, {"branches": (3, 2)}, {"continuous": 1, "branches": (2,)}])
def test_a_policy_that_has_diverged_never_acts(sizes: dict[str, Any], deterministic: bool) -> None:
    """A policy with non-finite outputs is refused by name before its action reaches an environment."""
    behavior = models.spec(**sizes)
    model = models.graph(behavior)
    for weight in model.graph.initializer:
        if weight.name.endswith("_weight"):
            weight.CopyFrom(models.tensor(weight.name, np.full((models.OBSERVED, weight.dims[1]), 3e38, np.float32)))
    policy = load(behavior, model, deterministic=deterministic)
    output = "mean" if behavior.action.continuous_size else "logits"
    seen = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], np.float32)

    with pytest.raises(PolicyUnusable, match=f"policy Tiny version 7 has diverged: output {output} is not finite"):
        policy.act([seen], None, noise_for(behavior, agents=2))
    assert np.isfinite(policy.act([seen * 0], None, noise_for(behavior, agents=2)).log_prob).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what numpy says of infinity; see endings.run_command
def test_a_deviation_beyond_all_numbers_is_a_policy_that_has_diverged() -> None:
    """A policy with finite outputs but an infinite standard deviation is refused."""
    behavior = models.spec(continuous=1)
    policy = load(behavior, models.graph(behavior))

    with pytest.raises(PolicyUnusable, match="has diverged: the action drawn from mean and log_std is not finite"):
        policy.act([OBSERVATIONS[0] * 200], None, noise_for(behavior))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # what numpy says of infinity; see endings.run_command
def test_an_environment_that_shows_nan_gets_numbers_for_it_and_the_policy_is_not_blamed() -> None:
    """Agents with NaN or infinite observations act by zero outputs; other agents are not affected."""
    behavior = models.spec(continuous=2, branches=(3,))
    policy = load(behavior, models.graph(behavior))
    seen = OBSERVATIONS[0].copy()
    seen[1, 0], seen[2, 1], seen[3, 2] = np.nan, np.inf, 1e38
    actions = policy.act([seen], None, noise_for(behavior))
    usual = policy.act(OBSERVATIONS, None, noise_for(behavior))

    assert actions.continuous is not None
    assert actions.environment_continuous is not None
    assert usual.continuous is not None
    assert all(np.isfinite(part).all() for part in actions[:4] if part is not None)
    assert not actions.environment_continuous[[1, 2, 3]].any()
    np.testing.assert_allclose(actions.continuous[[0, 4, 5]], usual.continuous[[0, 4, 5]], rtol=1e-5)


def test_masks_that_forbid_everything_are_no_fault_of_the_policy() -> None:
    """A mask that forbids everything is not reported as an error of the policy."""
    behavior = models.spec(branches=(3, 2))
    masks = np.ones((6, 5), np.uint8)
    masks[2, 3:] = 0
    actions = load(behavior, models.graph(behavior, masked=True)).act(OBSERVATIONS, masks, noise_for(behavior))
    assert np.isfinite(actions.log_prob).all()


def test_a_graph_that_fails_while_acting_is_one_error() -> None:
    """A graph that fails on some observations is one error that names the version."""
    behavior = models.spec(branches=(3,))
    model = models.graph(behavior)
    # Looks up the observation in a table of one entry: the zeros of the first run are in it, and little else.
    model.graph.node[-1].output[0] = "logits_before"
    model.graph.initializer.append(helper.make_tensor("table", TensorProto.FLOAT, [1], [0.0]))
    model.graph.node.append(helper.make_node("Cast", ["obs_0"], ["index"], to=TensorProto.INT64))
    model.graph.node.append(helper.make_node("Gather", ["table", "index"], ["found"]))
    model.graph.node.append(helper.make_node("Add", ["logits_before", "found"], ["logits"]))
    policy = load(behavior, model)

    with pytest.raises(PolicyUnusable, match="policy Tiny version 7: ONNX Runtime cannot run it"):
        policy.act([OBSERVATIONS[0] * 100], None, noise_for(behavior))


@pytest.mark.parametrize("masked", [False, True])
def test_a_number_of_agents_that_changes_with_each_call(masked: bool) -> None:
    """Each call may have another number of agents, with and without masks."""
    behavior = models.spec(branches=(3,))
    policy = load(behavior, models.graph(behavior, masked=masked), deterministic=True)
    noise = noise_for(behavior)
    random = np.random.default_rng(0)
    sizes = [6, 2, 6, 1, *random.integers(1, 80, 60).tolist(), 6]
    for call, agents in enumerate(sizes):
        seen = random.normal(size=(agents, models.OBSERVED)).astype(np.float32)
        scores = seen.astype(np.float64) @ models.weights((models.OBSERVED, 3), 3)
        masks = None
        if call % 2:
            masks = np.ones((agents, 3), np.uint8)
            masks[np.arange(agents), scores.argmax(axis=1)] = 0
            scores[masks == 0] = -np.inf
        actions = policy.act([seen], masks, noise)

        assert actions.discrete is not None
        np.testing.assert_array_equal(actions.discrete[:, 0], scores.argmax(axis=1))
        assert actions.log_prob.shape == (agents, 1)


def uniform_actions(policy: Policy, behavior: BehaviorSpec, masks: NDArray[np.uint8] | None = None) -> list[Actions]:
    """Returns the actions of 500 steps of six agents."""
    noise = noise_for(behavior)
    return [policy.act(OBSERVATIONS, masks, noise) for _ in range(500)]


@pytest.mark.parametrize("squash", [Squash.TANH, Squash.CLIP3_DIV3])
def test_uniform_actions_fill_the_bounds(squash: Squash) -> None:
    """A uniform policy acts uniformly within the bounds, whatever its outputs, and records the density of its draws."""
    behavior = models.spec(continuous=2)
    tanh = squash is Squash.TANH
    policy = load(
        behavior,
        models.graph(behavior, bias=2.0),
        uniform=True,
        continuous_distribution=Distribution.TANH_GAUSSIAN if tanh else Distribution.GAUSSIAN_CLIP3,
        action_transform=ActionTransform(squash, (-2.0, 0.0), (2.0, 1.0)),
    )
    steps = uniform_actions(policy, behavior)
    acted = np.concatenate(
        [actions.environment_continuous for actions in steps if actions.environment_continuous is not None]
    )
    assert len(acted) == 3000
    assert (acted >= [-2.0, 0.0]).all()
    assert (acted <= [2.0, 1.0]).all()
    for axis, (low, high) in enumerate([(-2.0, 2.0), (0.0, 1.0)]):
        counts, _ = np.histogram(acted[:, axis], bins=10, range=(low, high))
        assert counts.min() > 230
        assert counts.max() < 370
    for actions in steps[:20]:
        raw = actions.continuous
        assert raw is not None
        scaled = np.tanh(raw.astype(np.float64)) if tanh else raw / 3.0
        transformed = actions.environment_continuous
        assert transformed is not None
        np.testing.assert_allclose(transformed, scaled * [2, 0.5] + [0, 0.5], rtol=1e-5, atol=1e-6)
        # The volume of the actions is 2 for each axis under tanh, that of the draws 6 under a clip at 3.
        np.testing.assert_allclose(actions.log_prob, -np.log(2.0 if tanh else 6.0), rtol=1e-6)


@pytest.mark.parametrize("in_graph", [True, False])
def test_uniform_choices_are_among_the_allowed_ones(in_graph: bool) -> None:
    """Each allowed choice has the same probability, which is recorded."""
    behavior = models.spec(continuous=1, branches=(3, 2))
    policy = load(behavior, models.graph(behavior, masked=in_graph), uniform=True)
    masks = np.array([[1, 0, 1, 0, 1], [1, 1, 1, 1, 1]] * 3, np.uint8)
    steps = uniform_actions(policy, behavior, masks)
    chosen = np.concatenate([actions.discrete for actions in steps if actions.discrete is not None])
    few, all_of_them = chosen[::2], chosen[1::2]
    assert set(few[:, 0]) == {0, 2}
    assert set(few[:, 1]) == {1}
    assert abs((few[:, 0] == 0).mean() - 1 / 2) < 0.05
    for choice in range(3):
        assert abs((all_of_them[:, 0] == choice).mean() - 1 / 3) < 0.05
    expected = np.log([[1 / 6, 1 / 2, 1], [1 / 6, 1 / 3, 1 / 2]] * 3)
    for actions in steps[:20]:
        np.testing.assert_allclose(actions.log_prob, expected, rtol=1e-5, atol=1e-6)
    free = policy.act(OBSERVATIONS, None, noise_for(behavior))
    np.testing.assert_allclose(free.log_prob, np.log([[1 / 6, 1 / 3, 1 / 2]] * 6), rtol=1e-5)


def test_a_policy_and_its_variants_are_freed_at_once() -> None:
    """A policy that acted greedily and uniformly holds no reference to itself, which would keep its graph for minutes."""
    policy = load(models.spec(branches=(3,)))
    variants = [policy, policy.greedy(), policy.uniform(), policy.uniform().greedy()]
    freed = [weakref.ref(variant) for variant in variants]
    gc.disable()
    try:
        del policy, variants
        assert [reference() for reference in freed] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_uniform_policy_is_greedy_where_it_is_asked_to_be(deterministic: bool) -> None:
    """The mode of a uniform policy is that of its distribution, so that evaluations see what it has learned."""
    behavior = models.spec(continuous=2, branches=(3,))
    policy = load(behavior, uniform=True, deterministic=deterministic)
    plain = load(behavior).greedy().act(OBSERVATIONS, None, noise_for(behavior))
    found = policy.greedy().act(OBSERVATIONS, None, noise_for(behavior))
    assert policy.greedy() is policy.greedy().greedy()
    np.testing.assert_array_equal(found.continuous, plain.continuous)
    np.testing.assert_array_equal(found.discrete, plain.discrete)
    drawn = {np.asarray(actions.environment_continuous).tobytes() for actions in uniform_actions(policy, behavior)}
    assert len(drawn) == 500
