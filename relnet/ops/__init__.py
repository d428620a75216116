"""Tensors in, tensors out: relations, linear attention and plain norms. No parameters, no configuration.

Letters: B batch, T sources, S targets, D width over all heads, H heads, d = D / H, i a source, j a target, p sources, q targets.
"""

from relnet.ops.linear_attention import LinearAttentionState, linear_attention
from relnet.ops.norm import plain_norm
from relnet.ops.reference_mode import in_reference, use_reference
from relnet.ops.relation import explain, relation_mean
from relnet.ops.relation_linear import LinearRelationState, linear_relation

__all__ = [
    "LinearAttentionState",
    "LinearRelationState",
    "explain",
    "in_reference",
    "linear_attention",
    "linear_relation",
    "plain_norm",
    "relation_mean",
    "use_reference",
]
