"""One declared behavior, as the connection keeps it.

A behavior has one gate, one number and one newest policy; each of its teams has a port with its own books and its own
acting policy.
"""

import structlog
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import session_pb2, trajectory_pb2

from actor_client.connection.books import BooksView
from actor_client.connection.gate import Gate
from actor_client.connection.hub import Hub
from actor_client.connection.port import BehaviorPort, Pin
from actor_client.connection.verdicts import one_line
from actor_client.policy.actions import ActingPolicy

# Compression is tried on observations of bytes at least this large: floats do not shrink, small ones do not pay.
COMPRESS_FROM_BYTES = 1024
# The number of a chunk is not known while it waits: five bytes in place of it keep the estimate on the safe side.
PLACEHOLDER_SEQUENCE = 1 << 34


class Behavior:
    """What the connection knows of one behavior.

    Args:
        hub: The state of the connection.
        spec: What was declared.

    Attributes:
        index: The learner's number in the present session; -1 before it was declared there.
        gate: Credit and holds in the present session.
        settings: How the learner wants segments.
        newest: The newest policy that was loaded in the present generation.
        policy_error: Why the newest version could not be used; empty if it could.
        pin: A version that was asked for; None if none was.
        ports: One for each team.
    """

    def __init__(self, hub: Hub, spec: BehaviorSpec) -> None:
        self._hub = hub
        self.spec = spec
        self.name = spec.name
        self.index = -1
        self.gate = Gate(0)
        self.settings = session_pb2.DeclareBehaviorResponse()
        self.newest: ActingPolicy | None = None
        self.policy_error = ""
        self.pin: Pin | None = None
        self.ports: tuple[BehaviorPort, ...] = ()
        self._pictures = frozenset(
            prefix + observation.name
            for observation in spec.observations
            if observation.dtype.itemsize == 1 and observation.size_bytes >= COMPRESS_FROM_BYTES
            for prefix in ("obs/", "final_obs/")
        )

    def port(self, team: int, agents: int) -> BehaviorPort:
        """Returns the port of a team, a new one if there is none, with its number of agents."""
        for port in self.ports:
            if port.team == team:
                port.agents = agents
                return port
        port = BehaviorPort(self._hub, self, team, agents)
        self.ports = (*self.ports, port)
        return port

    @property
    def agents(self) -> int:
        """Agents that act at present, of all teams."""
        return sum(port.agents for port in self.ports)

    @property
    def produced_steps(self) -> int:
        """Steps produced in the present session, of all teams."""
        ports = self.ports
        if len(ports) == 1:
            return ports[0].present_books.produced_steps
        return sum(port.present_books.produced_steps for port in ports)

    def view(self) -> BooksView:
        """Returns the books of the present session, of all teams."""
        return sum((port.present_books.view() for port in self.ports), BooksView())

    def total(self) -> BooksView:
        """Returns the books of all sessions, of all teams, as of one moment."""
        with self._hub.window.lock:
            return sum((port.total() for port in self.ports), BooksView())

    @property
    def has_untaken_policy(self) -> bool:
        """Whether there is a policy that no team has taken."""
        newest = self.newest
        return newest is not None and not any(port.has_taken(newest) for port in self.ports)

    @property
    def credit_steps(self) -> int:
        """Steps that may be taken before more credit is needed."""
        return max(0, self.gate.steps_through - self.produced_steps)

    @property
    def held(self) -> frozenset[str]:
        """Reasons of the holds that keep any team waiting."""
        versions = [port.acting[1] for port in self.ports]
        return frozenset(
            hold.word for hold in self.gate.holds if any(hold.holds(version) for version in versions or [0])
        )

    def report(self) -> session_pb2.ActorBooks:
        """Returns the books as they travel in renewals."""
        return self.view().to_message(self.index, self.agents)

    def policy_report(self) -> session_pb2.PolicyReport:
        """Returns which policy acts, and why a newer one does not."""
        generation, version = max((port.acting for port in self.ports), default=(0, 0))
        return session_pb2.PolicyReport(
            behavior_index=self.index, generation=generation, version=version, error=self.policy_error
        )

    def refuse(self, policy: ActingPolicy, why: str, instead: ActingPolicy | None) -> None:
        """Reports a version that cannot act on what is seen, at once. Called in the connection's thread."""
        hub, why = self._hub, one_line(why)
        hub.counts.policies_unusable += 1
        if policy is self.newest:
            self.policy_error = why
            hub.renew_now.set()
        if (left_out := hub.notices.due("policy_refused")) is not None:
            action = (
                "waits for a newer one"
                if instead is None
                else f"goes on with version {instead.version}, if it still may"
            )
            structlog.get_logger().warning(
                "policy_refused", behavior=self.name, reason=why, action=action, left_out=left_out
            )

    def encode(self, chunk: Chunk) -> trajectory_pb2.UploadRequest:
        """Returns the message of a chunk, with the counters of the session as they are now."""
        view = self.view()
        chunk.sequence = PLACEHOLDER_SEQUENCE
        chunk.behavior_index = max(self.index, 0)  # -1 between two sessions: then the chunk is dropped, not sent
        chunk.produced_steps = view.produced
        chunk.discarded = dict(view.discarded)
        chunk.ghost_steps = view.ghost
        chunk.agents = self.agents
        run = self._hub.run
        pictures = self._pictures if run is not None and "zstd" in run.column_encodings else frozenset()
        return trajectory_pb2.UploadRequest(chunk=encode_chunk(chunk, compress=pictures))
