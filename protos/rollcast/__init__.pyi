from actor_client.background import ActorThread as ActorThread
from actor_client.background import act as act
from actor_client.library import Evaluation as Evaluation
from actor_client.library import LoadedPolicy as LoadedPolicy
from actor_client.library import evaluate as evaluate
from actor_client.library import load_policy as load_policy
from learner.cli.sweep_request import Study as Study
from learner.library import Run as Run
from learner.library import serve as serve
from learner.library import sweep as sweep
from learner.library import train as launch
from learner.library import train as train
from rollcast.exits import RollcastError as RollcastError

__all__ = [
    "ActorThread",
    "Evaluation",
    "LoadedPolicy",
    "RollcastError",
    "Run",
    "Study",
    "act",
    "evaluate",
    "launch",
    "load_policy",
    "serve",
    "sweep",
    "train",
]
