"""Demonstration files (``.demo``), as Unity's recorder writes them: reading as arrays, and writing.

The bytes: a ``DemonstrationMetaProto`` in the first 32 bytes, a ``BrainParametersProto`` at byte 33, then one
``AgentInfoActionPairProto`` a decision, each behind its length as a varint.
"""
