"""Lists all checks."""

from functools import partial

from tests.tools.gpu import learning, memory, publication, repeating, replay, speed, staging, updates, waits
from tests.tools.gpu.cases import TRAINERS
from tests.tools.gpu.check import Check

CHECKS: tuple[Check, ...] = (
    Check("staging", "the queue holds bit by bit what a CPU's holds, while the device is idle and busy", staging.check),
    *(
        Check(
            f"updates-{trainer}", f"`{trainer}` learns what it learns on a CPU", partial(updates.check, trainer=trainer)
        )
        for trainer in TRAINERS
    ),
    Check("replay", "the replay memory draws and lets go as on a CPU", replay.check),
    Check("replay-file", "a saved replay memory can be read on either device", replay.check_file),
    Check("publication", "a published policy computes what the network on the device does", publication.check),
    Check("checkpoints", "a state can be loaded on either device", publication.check_checkpoints),
    Check("waits", "nothing in the loops over minibatches waits for the device", waits.check),
    Check("memory", "a trainer that ends gives its memory back", memory.check),
    Check("lockstep", "two processes of one seed end bit-equal", repeating.check),
    Check("cartpole", "the gate cartpole-ppo", partial(learning.check, name="cartpole-ppo")),
    Check("catch", "the gate catch", partial(learning.check, name="catch")),
    Check("speed-mlp", "decisions a second of the learner alone, vectors", partial(speed.check, name="mlp")),
    Check("speed-nature", "decisions a second of the learner alone, pictures", partial(speed.check, name="nature")),
)
"""All checks, in the order in which they run."""
