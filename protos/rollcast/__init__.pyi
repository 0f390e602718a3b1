from actor_client.library import Evaluation as Evaluation
from actor_client.library import LoadedPolicy as LoadedPolicy
from actor_client.library import evaluate as evaluate
from actor_client.library import load_policy as load_policy
from learner.library import Run as Run
from learner.library import serve as serve
from learner.library import train as train
from rollcast.exits import RollcastError as RollcastError

__all__ = ["Evaluation", "LoadedPolicy", "RollcastError", "Run", "evaluate", "load_policy", "serve", "train"]
