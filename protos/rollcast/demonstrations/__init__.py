"""Demonstration files (``.demo``) of Unity's recorder: reads them as arrays, and writes them.

The bytes: a ``DemonstrationMetaProto`` in the first 32 bytes, a ``BrainParametersProto`` at byte 33, then one
``AgentInfoActionPairProto`` per decision, each preceded by its length as a varint.
"""
