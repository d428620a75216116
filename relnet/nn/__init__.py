"""Modules: relation mixers, attention, LSTM, and the sequence model that takes any of them.

Letters: B batch, S new tokens, T all tokens so far, D hidden width.
"""

from relnet.nn.attention import Attention, AttentionConfig, AttentionState, explicit_attention
from relnet.nn.config_json import bidirectional_from_json, converter, mixer_from_json, mixer_to_json
from relnet.nn.generate import NO_TOKEN, Sampling, TokenStream, stream
from relnet.nn.image_model import BidirectionalMixerConfig, ImageModel, ImageModelConfig
from relnet.nn.linear_attention import LinearAttention, LinearAttentionConfig, LinearAttentionState
from relnet.nn.lstm import LSTM, LSTMConfig, LSTMState
from relnet.nn.mixer import Mixer, MixerConfig, initialise
from relnet.nn.model import CausalMixerConfig, ModelConfig, ModelState, SequenceModel
from relnet.nn.relation import (
    BiRN,
    BiRNConfig,
    CausalRN,
    CausalRNConfig,
    LinearBiRN,
    LinearBiRNConfig,
    LinearCausalRN,
    LinearCausalRNConfig,
    LinearRelationState,
    RelationState,
)
from relnet.nn.relation_maps import QUANTITIES, Quantity, mixer_inputs, quantities, relation_map
from relnet.nn.state import Cache, State

__all__ = [
    "LSTM",
    "NO_TOKEN",
    "QUANTITIES",
    "Attention",
    "AttentionConfig",
    "AttentionState",
    "BiRN",
    "BiRNConfig",
    "BidirectionalMixerConfig",
    "Cache",
    "CausalMixerConfig",
    "CausalRN",
    "CausalRNConfig",
    "ImageModel",
    "ImageModelConfig",
    "LSTMConfig",
    "LSTMState",
    "LinearAttention",
    "LinearAttentionConfig",
    "LinearAttentionState",
    "LinearBiRN",
    "LinearBiRNConfig",
    "LinearCausalRN",
    "LinearCausalRNConfig",
    "LinearRelationState",
    "Mixer",
    "MixerConfig",
    "ModelConfig",
    "ModelState",
    "Quantity",
    "RelationState",
    "Sampling",
    "SequenceModel",
    "State",
    "TokenStream",
    "bidirectional_from_json",
    "converter",
    "explicit_attention",
    "initialise",
    "mixer_from_json",
    "mixer_inputs",
    "mixer_to_json",
    "quantities",
    "relation_map",
    "stream",
]
