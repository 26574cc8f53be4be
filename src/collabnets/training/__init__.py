"""Algorithm 1 of the paper: pre-train g, then train f and g jointly; many members at once, in compiled chunks.

A *member* is one pair of networks with its own seed and its own training rows. All members stand in arrays with a
leading axis and train together: an ensemble on one data set, or replications on several. A chunk is one
compiled loop of up to ``CHUNK`` iterations; between chunks the host only looks at losses. What an iteration draws
depends on the seed and the iteration's number alone, so the chunk size does not change a bit of the result.
"""

from collabnets.training.chunks import draw, held_out_loss, keep_best, over_members, run_chunk
from collabnets.training.draws import batch_rows, mix, uniform
from collabnets.training.loop import interruptible, train
from collabnets.training.plan import CHUNK, Best, Data, Losses, Member, Phase, Plan, Schedule, State

__all__ = [
    "CHUNK",
    "Best",
    "Data",
    "Losses",
    "Member",
    "Phase",
    "Plan",
    "Schedule",
    "State",
    "batch_rows",
    "draw",
    "held_out_loss",
    "interruptible",
    "keep_best",
    "mix",
    "over_members",
    "run_chunk",
    "train",
    "uniform",
]
