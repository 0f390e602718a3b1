"""The parts that every run has, whether it trains or serves a finished policy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path

from rollcast.v1 import policy_pb2

from learner.curriculum.lessons import Lessons
from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable
from learner.link.commands import CommandChannel
from learner.link.evaluation import EvaluationSink
from learner.networks.policy import PolicyNetwork
from learner.observe.stats import StatsReporter
from learner.observe.view import RunState, RunView
from learner.publish.describe import describe
from learner.publish.publisher import PolicyPublisher
from learner.publish.store import PolicyStore
from learner.run.control import RunControl
from learner.run.setup import choose_device, gpu_memory, keep_freed_memory, make_metrics
from learner.run.stopping import Stopping
from learner.service.run_info import RunInfo
from learner.service.server import LearnerServer
from learner.settings.options import RunOptions
from learner.status.run_status import RunStatus
from learner.status.scrape import Scrape
from learner.trainers.base import ModelSaver, TrainerContext
from learner.trainers.judge import judge
from learner.trainers.loop import TrainerLoop
from learner.web.learner_hooks import RunHooks
from learner.web.status_site import StatusSite


class BaseRun(ABC):
    """One run of a learner: actors, books, policies, trainers, and the ports that show them.

    A subclass makes `loop`.

    Args:
        options: the run file.
        run_id: the name of the run.
        generation: grows with each start of the learner.
        seed: seeds of trainers and environments follow from it.

    Raises:
        UserError: the device cannot be used.

    Attributes:
        options, service: the run file, and its settings of the service.
        run_id, generation, seed, device: of this start.
        stopping: whether and why the run ends.
        commands: carries to the service what actors are asked to do.
        ledger, behaviors, sessions: the books, what actors declared, and the actors.
        store: the policies.
        metrics, run_status: what is shown of the run.
        lessons: what the environments are set to.
        loop: runs the trainers.
        address: where actors find the learner; with the bound port once it is known.
    """

    loop: TrainerLoop

    def __init__(self, options: RunOptions, *, run_id: str, generation: int, seed: int) -> None:
        self.options = options
        self.service = options.rollcast
        self.run_id = run_id
        self.generation = generation
        self.seed = seed
        keep_freed_memory()
        self.device = choose_device(options)
        self.stopping = Stopping()
        self.commands = CommandChannel()
        self.ledger = Ledger()
        self.behaviors = BehaviorTable(options, self.ledger, judge)
        self.sessions = SessionTable(self.behaviors, self.ledger, generation=generation)
        self.store = PolicyStore()
        self.metrics = make_metrics(self.service)
        self.lessons = Lessons(options.environment_parameters, seed=seed)
        self.run_status = RunStatus(
            self.behaviors,
            self.sessions,
            self.ledger,
            self.service,
            run_id=run_id,
            generation=generation,
            lessons=self.lessons,
        )
        self.address = self.service.address

    def view(self) -> RunView:
        """Returns the status at this moment; from any thread."""
        return self.run_status.run_view(self.state, self.address)

    @property
    def state(self) -> RunState:
        """What the learner does at present."""
        if self.stopping.stop is not None:
            return RunState.FAILED if self.stopping.stop.error is not None else RunState.DRAINING
        return RunState.PAUSED if self.loop.is_paused else self.active_state()

    @abstractmethod
    def active_state(self) -> RunState:
        """Returns what the learner does while it neither stops nor pauses."""

    @abstractmethod
    def save(self) -> Path:
        """Writes a checkpoint of everything and returns its path; in the trainer thread."""

    def trainer_context(
        self,
        behavior: Behavior,
        stats: StatsReporter,
        evaluations: EvaluationSink,
        *,
        seed: int,
        is_deterministic: bool,
        saver: ModelSaver | None = None,
    ) -> TrainerContext:
        """Makes what the trainer of a behavior gets from outside; without a saver it is one that does not train.

        Args:
            behavior: what is trained, or acts.
            stats: where its statistics go.
            evaluations: where episodes of evaluations go.
            seed: of weights and permutations.
            is_deterministic: the mode of the distribution acts.
            saver: where model files are written.
        """

        def open_publisher(network: PolicyNetwork) -> PolicyPublisher:
            template = describe(
                network,
                behavior_index=behavior.index,
                generation=self.generation,
                deterministic=is_deterministic,
                memory_stride=behavior.memory_stride,
            )
            return PolicyPublisher(network, self.store, template)

        return TrainerContext(
            behavior=behavior,
            ledger=self.ledger,
            stats=stats,
            open_publisher=open_publisher,
            generation=self.generation,
            seed=seed,
            device=self.device,
            service=self.service,
            is_training=saver is not None,
            saver=saver,
            metrics=self.metrics.behavior(behavior.name),
            lessons=self.lessons,
            evaluations=evaluations,
        )

    def make_control(self) -> RunControl:
        """Makes what operators' requests go to."""
        return RunControl(
            self.loop,
            view=self.view,
            save=self.save,
            request_stop=self.stopping.ask_anywhere,
            send=self.commands.send,
        )

    def make_server(self, control: RunControl, task: policy_pb2.BehaviorAssignment | None = None) -> LearnerServer:
        """Makes the gRPC service; not started yet.

        Args:
            control: what operators can do.
            task: what actors are asked for until they are ordered something; None lets them learn.
        """
        run = RunInfo.from_options(
            self.options,
            run_id=self.run_id,
            generation=self.generation,
            run_seed=self.seed,
            server_version=version("rollcast"),
            assignment=self.lessons.assignment(),
        )
        return LearnerServer(
            address=self.service.address,
            control_address=self.service.control_address,
            settings=self.service,
            behaviors=self.behaviors,
            sessions=self.sessions,
            ledger=self.ledger,
            store=self.store,
            run=run,
            control=control,
            metrics=self.metrics,
            commands=self.commands,
            task=task,
        )

    def make_site(self, server: LearnerServer, control: RunControl, folder: Path, *, falls_back: bool) -> StatusSite:
        """Makes the status site, not started yet, and lets the metrics show the state of all parts.

        Args:
            server: streams and rates.
            control: what the buttons do.
            folder: where the operator's token is kept.
            falls_back: whether another port is taken if the one set is in use.
        """
        scrape = Scrape(
            view=self.view,
            behaviors=self.behaviors,
            sessions=self.sessions,
            store=self.store,
            server=server,
            trainers=lambda: self.loop.trainers,
            checkpoint_seconds=self.service.checkpoint_seconds,
            gpu=gpu_memory(self.device),
            started_at=time.time() - self.run_status.uptime_seconds,
        )
        self.metrics.watch(scrape.snapshot)
        hooks = RunHooks(
            control,
            self.behaviors,
            self.sessions,
            self.metrics,
            is_serving=lambda: server.is_serving,
            history=self.run_status.history,
            version=version("rollcast"),
        )
        return StatusSite(self.service, folder, hooks, falls_back=falls_back)
