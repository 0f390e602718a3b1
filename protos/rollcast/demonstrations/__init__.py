"""Demonstration files (``.demo``) of Unity's recorder: reads them as arrays, and writes them.

The bytes: a ``DemonstrationMetaProto`` in the first 32 bytes, a ``BrainParametersProto`` at byte 33, then one
``AgentInfoActionPairProto`` per decision, each preceded by its length as a varint.
"""

from typing import Literal

Pairing = Literal["auto", "same_record", "next_record"]
"""The record that has the action of a step: that of its observation, the one after it, or as the recording shows."""
