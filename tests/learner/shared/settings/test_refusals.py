"""Tests the refused run files, each with its whole message.

ML-Agents 1.1.0 refuses the same texts, most of them with a traceback; those that it takes and Rollcast does not are in
a table of their own, with the reason in their names.
"""

from __future__ import annotations

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.load import load_run_options

from .conftest import WriteRun

PPO = "behaviors:\n  A:\n    trainer_type: ppo\n"
MASS = PPO + "environment_parameters: {m: %s}\n"
LESSONS = MASS % "{curriculum: [{name: a, value: 1, completion_criteria: {%s}}, {name: b, value: 2}]}"
SAMPLER = MASS % "{sampler_type: %s, sampler_parameters: {%s}}"
LESSON = "4: environment_parameters.m.curriculum.0."

REFUSED: dict[str, tuple[str, str]] = {
    # keys
    "unknown block": ("behaviors: {A: {}}\nfoo: 1\n", "2: foo: unknown key 'foo'; known keys: default_settings, behaviors, env_settings, engine_settings, environment_parameters, checkpoint_settings, torch_settings, debug, rollcast"),
    "a place for anchors": ("x: &x {max_steps: 5}\nbehaviors: {A: *x}\n", "1: x: unknown key 'x'; known keys: default_settings, behaviors, env_settings, engine_settings, environment_parameters, checkpoint_settings, torch_settings, debug, rollcast"),
    "an empty section at the level of behaviors": (PPO + "  hyperparameters:\n", "4: behaviors.hyperparameters: is a setting, not the name of a behavior: write it below behaviors.A"),
    "a section at the level of behaviors": (PPO + "  hyperparameters: {batch_size: 64}\n", "4: behaviors.hyperparameters: is a setting, not the name of a behavior: write it below behaviors.A"),
    "a value at the level of behaviors": (PPO + "  max_steps: 500\n", "4: behaviors.max_steps: is a setting, not the name of a behavior: write it below behaviors.A"),
    "another block among behaviors": (PPO + "  engine_settings: {time_scale: 1}\n", "4: behaviors.engine_settings: is a setting, not the name of a behavior: write it at the level of behaviors"),
    "a section at the level of blocks": (PPO + "network_settings: {hidden_units: 8}\n", "4: network_settings: is a setting of a behavior: write it below behaviors.NAME"),
    "an empty section at the level of blocks": (PPO + "hyperparameters:\n", "4: hyperparameters: is a setting of a behavior: write it below behaviors.NAME"),
    "mistyped": (PPO + "    hyperparameters: {lamda: 1.0}\n", "4: behaviors.A.hyperparameters.lamda: unknown key 'lamda'; did you mean 'lambd'?"),
    "another trainer's": (PPO + "    hyperparameters: {tau: 0.1}\n", "4: behaviors.A.hyperparameters.tau: unknown key 'tau'; it is a hyperparameter of sac"),
    "two other trainers'": ("behaviors: {A: {trainer_type: sac, hyperparameters: {beta: 1}}}\n", "1: behaviors.A.hyperparameters.beta: unknown key 'beta'; it is a hyperparameter of ppo, appo, impala and poca"),
    "shared_critic of poca": ("behaviors: {A: {trainer_type: poca, hyperparameters: {shared_critic: true}}}\n", "1: behaviors.A.hyperparameters.shared_critic: unknown key 'shared_critic'; it is a hyperparameter of ppo, appo and impala"),
    "the documents' reward_signal_num_update": ("behaviors: {A: {trainer_type: sac, hyperparameters: {reward_signal_num_update: 2}}}\n", "1: behaviors.A.hyperparameters.reward_signal_num_update: unknown key 'reward_signal_num_update'; did you mean 'reward_signal_steps_per_update'?"),
    "the documents' behavior_cloning": (PPO + "    behavior_cloning: {demo_path: d}\n", "4: behaviors.A.behavior_cloning: unknown key 'behavior_cloning'; did you mean 'behavioral_cloning'?"),
    "one block too high": (PPO + "    normalize: true\n", "4: behaviors.A.normalize: unknown key 'normalize'; it belongs under network_settings"),
    "two blocks too high": (PPO + "    sequence_length: 8\n", "4: behaviors.A.sequence_length: unknown key 'sequence_length'; it belongs under network_settings.memory"),
    "gamma": (PPO + "    hyperparameters: {gamma: 0.9}\n", "4: behaviors.A.hyperparameters.gamma: belongs under reward_signals.extrinsic"),
    "output_path": (PPO + "    output_path: x\n", "4: behaviors.A.output_path: is an obsolete setting; set checkpoint_settings.results_dir instead"),
    "use_recurrent": (PPO + "    use_recurrent: true\n", "4: behaviors.A.use_recurrent: is an obsolete setting; write network_settings: {memory: {}} instead"),
    "an unknown signal": (PPO + "    reward_signals: {pride: {}}\n", "4: behaviors.A.reward_signals.pride: unknown key 'pride'; known keys: extrinsic, curiosity, rnd, gail"),
    "a key of a signal": (PPO + "    reward_signals: {extrinsic: {strenght: 1}}\n", "4: behaviors.A.reward_signals.extrinsic.strenght: unknown key 'strenght'; did you mean 'strength'?"),
    "a key of the service": (PPO + "rollcast: {adress: x}\n", "4: rollcast.adress: unknown key 'adress'; did you mean 'address'?"),
    "a key of the service outside": (PPO + "target_return: 3\n", "4: target_return: unknown key 'target_return'; it belongs under rollcast"),
    "a key of a lesson": (MASS % "{curriculum: [{name: a, value: 1, criteria: {}}]}", LESSON + "criteria: unknown key 'criteria'; known keys: name, value, completion_criteria"),
    "a key of a sampler": (SAMPLER % ("uniform", "min: 2"), "4: environment_parameters.m.sampler_parameters.min: unknown key 'min'; known keys: seed, min_value, max_value"),
    "a key beside a curriculum": (MASS % "{curriculum: [{name: a, value: 1}], seed: 3}", "4: environment_parameters.m.seed: unknown key 'seed'; known keys: curriculum"),
    # trainer types and merging
    "traces longer than V-trace bears": ("behaviors: {A: {trainer_type: appo, hyperparameters: {c_bar: 2}}}\n", "1: behaviors.A.hyperparameters: c_bar is 2, more than rho_bar 1: V-trace converges only if c_bar is at most rho_bar; lower c_bar or raise rho_bar"),
    "unknown trainer": ("behaviors: {A: {trainer_type: dqn}}\n", "1: behaviors.A.trainer_type: there is no trainer 'dqn'; the trainers are appo, impala, poca, ppo, sac"),
    "hyperparameters of no trainer": ("behaviors: {A: {hyperparameters: {beta: 1}}}\n", "1: behaviors.A.hyperparameters: is given without a trainer_type; add trainer_type: ppo next to it"),
    "default hyperparameters of no trainer": ("default_settings: {hyperparameters: {beta: 1}}\n", "1: default_settings.hyperparameters: is given without a trainer_type; add trainer_type: ppo next to it"),
    "sac over ppo": ("default_settings: {trainer_type: ppo}\nbehaviors: {A: {trainer_type: sac}}\n", "2: behaviors.A.trainer_type: is 'sac', but default_settings is for 'ppo' and sets hyperparameters that 'sac' does not have (learning_rate_warmup, desired_kl, target_kl, weight_decay, beta, num_epoch, beta_schedule, ratio, value_coefficient, normalize_values, normalize_advantages, epsilon, lambd, epsilon_schedule, shared_critic): give both the same trainer_type"),
    "poca over ppo": ("default_settings: {trainer_type: ppo}\nbehaviors: {A: {trainer_type: poca}}\n", "2: behaviors.A.trainer_type: is 'poca', but default_settings is for 'ppo' and sets hyperparameters that 'poca' does not have (shared_critic): give both the same trainer_type"),
    # nulls and shapes
    "null hyperparameters": (PPO + "    hyperparameters:\n", "4: behaviors.A.hyperparameters: must be a map of settings, got None"),
    "null network": (PPO + "    network_settings:\n", "4: behaviors.A.network_settings: must be a map of settings, got None"),
    "null signals": (PPO + "    reward_signals:\n", "4: behaviors.A.reward_signals: must be a map of settings, got None"),
    "null signal": (PPO + "    reward_signals: {extrinsic: }\n", "4: behaviors.A.reward_signals.extrinsic: is empty; write {} for default settings, or leave the line out"),
    "null does not remove a signal": ("default_settings: {reward_signals: {curiosity: {}}}\nbehaviors: {A: {reward_signals: {curiosity: }}}\n", "2: behaviors.A.reward_signals.curiosity: is empty; write {} for default settings, or leave the line out"),
    "null number": (PPO + "    max_steps:\n", "4: behaviors.A.max_steps: must be a finite number, got None"),
    "one name": (PPO + "    network_settings: {critic_only: goal}\n", "4: behaviors.A.network_settings.critic_only: must be a list, got 'goal'"),
    "null choice": (PPO + "    network_settings: {goal_conditioning_type: null}\n", "4: behaviors.A.network_settings.goal_conditioning_type: must be 'hyper' or 'none', got None"),
    "null parameter": (MASS % "", "4: environment_parameters.m: must be a number, or a map with sampler_type and sampler_parameters, got None"),
    "a memory that is true": (PPO + "    network_settings: {memory: true}\n", "4: behaviors.A.network_settings.memory: must be a map of settings, got True"),
    "a list of behaviors": ("behaviors: [A]\n", "1: behaviors: must be a map of behavior names to settings"),
    "a list of defaults": ("default_settings: [1]\n", "1: default_settings: must be a map of settings, got [1]"),
    "a behavior that is a number": ("behaviors: {A: 3}\n", "1: behaviors.A: must be a map of settings, got 3"),
    "a number that is a word": (PPO + "    max_steps: many\n", "4: behaviors.A.max_steps: must be a finite number, got 'many'"),
    "a number that is a list": (PPO + "    hyperparameters: {learning_rate: [1]}\n", "4: behaviors.A.hyperparameters.learning_rate: must be a finite number, got [1]"),
    "a choice in capitals": (PPO + "    hyperparameters: {beta_schedule: Linear}\n", "4: behaviors.A.hyperparameters.beta_schedule: must be 'linear', 'constant' or 'cosine', got 'Linear'"),
    "an unknown encoder": (PPO + "    network_settings: {vis_encode_type: vgg}\n", "4: behaviors.A.network_settings.vis_encode_type: must be 'simple', 'nature_cnn', 'resnet', 'match3' or 'fully_connected', got 'vgg'"),
    # rules between settings
    "an odd memory": (PPO + "    network_settings: {memory: {memory_size: 127}}\n", "4: behaviors.A.network_settings.memory.memory_size: must be an even number, got 127"),
    "no memory at all": (PPO + "    network_settings: {memory: {memory_size: 0}}\n", "4: behaviors.A.network_settings.memory.memory_size: must be greater than or equal to 1, got 0"),
    "a sequence beyond the batch": (PPO + "    network_settings: {memory: {sequence_length: 2000}}\n", "2: behaviors.A: network_settings.memory.sequence_length is 2000, more than hyperparameters.batch_size 1024: lower sequence_length or raise batch_size"),
    "uniform actions of no steps": ("behaviors: {A: {trainer_type: sac, hyperparameters: {buffer_init_actions: uniform}}}\n", "1: behaviors.A.hyperparameters: buffer_init_actions is uniform, but buffer_init_steps is 0, so no step has such actions: set buffer_init_steps"),
    "a sequence beyond sac's batch": ("behaviors: {A: {trainer_type: sac, network_settings: {memory: {sequence_length: 129}}}}\n", "1: behaviors.A: network_settings.memory.sequence_length is 129, more than hyperparameters.batch_size 128: lower sequence_length or raise batch_size"),
    "gail without a demonstration": (PPO + "    reward_signals: {gail: {}}\n", "4: behaviors.A.reward_signals.gail.demo_path: is required but missing"),
    "cloning without a demonstration": (PPO + "    behavioral_cloning: {}\n", "4: behaviors.A.behavioral_cloning.demo_path: is required but missing"),
    "editors": (PPO + "env_settings: {num_envs: 2}\n", "4: env_settings: num_envs is 2, but the editor is only one environment: set env_path"),
    "no area": (PPO + "env_settings: {num_areas: 0}\n", "4: env_settings.num_areas: must be greater than or equal to 1, got 0"),
    # samplers
    "a word": (MASS % "heavy", "4: environment_parameters.m: must be a finite number, got 'heavy'"),
    "a list": (MASS % "[1, 2]", "4: environment_parameters.m: must be a number, or a map with sampler_type and sampler_parameters, got [1, 2]"),
    "an unknown sampler": (SAMPLER % ("poisson", ""), "4: environment_parameters.m.sampler_type: must be 'uniform', 'gaussian', 'multirangeuniform' or 'constant', got 'poisson'"),
    "a sampler without a type": (MASS % "{sampler_parameters: {}}", "4: environment_parameters.m.sampler_type: is required but missing"),
    "a sampler without parameters": (MASS % "{sampler_type: uniform}", "4: environment_parameters.m.sampler_parameters: is required but missing"),
    "bounds the wrong way round": (SAMPLER % ("uniform", "min_value: 2"), "4: environment_parameters.m.sampler_parameters: min_value 2.0 is more than max_value 1.0: exchange them"),
    "an interval the wrong way round": (SAMPLER % ("multirangeuniform", "intervals: [[1, 2], [4, 3]]"), "4: environment_parameters.m.sampler_parameters.intervals: interval [4.0, 3.0] must have its minimum first"),
    "intervals that are none": (SAMPLER % ("multirangeuniform", "intervals: [1, 2]"), "4: environment_parameters.m.sampler_parameters.intervals: interval 1 must be two numbers, as in [0.0, 1.0]"),
    # lessons
    "a lesson that never ends": (MASS % "{curriculum: [{name: a, value: 1}, {name: b, value: 2}]}", "4: environment_parameters.m: lesson 'a' has no completion_criteria; every lesson but the last needs them"),
    "a lesson without a name": (MASS % "{curriculum: [{value: 1}]}", LESSON + "name: is required but missing"),
    "a lesson without a value": (MASS % "{curriculum: [{name: a}]}", LESSON + "value: is required but missing"),
    "a lesson with a wrong sampler": (MASS % "{curriculum: [{name: a, value: {sampler_type: uniform, sampler_parameters: {min_value: 3}}}]}", LESSON + "value.sampler_parameters: min_value 3.0 is more than max_value 1.0: exchange them"),
    "criteria of nobody": (LESSONS % "threshold: 1", LESSON + "completion_criteria.behavior: is required but missing"),
    "a measure that is none": (LESSONS % "behavior: A, measure: elo", LESSON + "completion_criteria.measure: must be 'reward', 'group_reward', 'progress', 'evaluation' or 'statistic', got 'elo'"),
    "progress beyond the end": (LESSONS % "behavior: A, measure: progress, threshold: 2", LESSON + "completion_criteria: threshold is 2.0, but progress is between 0 and 1"),
    "progress before the start": (LESSONS % "behavior: A, measure: progress, threshold: -0.1", LESSON + "completion_criteria: threshold is -0.1, but progress is between 0 and 1"),
    "a curriculum that is no list": (MASS % "{curriculum: {name: a, value: 1}}", "4: environment_parameters.m.curriculum: must be a list, got {'name': 'a', 'value': 1}"),
}  # fmt: skip

REFUSED_HERE_ONLY: dict[str, tuple[str, str]] = {
    "it can only be a slip: three bounds": (SAMPLER % ("multirangeuniform", "intervals: [[1, 2, 3]]"), "4: environment_parameters.m.sampler_parameters.intervals: interval [1, 2, 3] must be two numbers, as in [0.0, 1.0]"),
    "nothing could be drawn": (SAMPLER % ("multirangeuniform", "intervals: []"), "4: environment_parameters.m.sampler_parameters.intervals: has no interval; write at least one, such as [[0.0, 1.0]]"),
    "nothing could be taught": (MASS % "{curriculum: []}", "4: environment_parameters.m.curriculum: has no lesson; write at least one, with a name and a value"),
    "nothing could be trained": ("debug: true\n", " has neither behaviors nor default_settings; add the behaviors to train"),
}  # fmt: skip


@pytest.mark.parametrize("case", [*REFUSED, *REFUSED_HERE_ONLY])
def test_it_is_refused(write_run: WriteRun, case: str) -> None:
    """The file is refused with one error that has line, path, rule and value."""
    text, message = {**REFUSED, **REFUSED_HERE_ONLY}[case]
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(text))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert str(caught.value).partition("run.yaml:")[2] == message
    assert caught.value.details == ()
