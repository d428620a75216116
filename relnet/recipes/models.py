"""The models of the papers by name."""

from typing import Literal, get_args

from relnet import nn

ModelName = Literal["causalrn", "linear-causalrn", "transformer", "linear-transformer", "lstm", "hybrid"]
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)
# Models without a phase change, which a demonstration need not wait for as long.
LINEAR_MODELS = ("linear-causalrn", "linear-transformer")


def model(
    name: ModelName,
    vocab_size: int,
    context: int,
    width: int = 192,
    depth: int = 12,
    heads: int = 1,
    hidden: int | None = None,
) -> nn.ModelConfig:
    """Return a model of the paper by name.

    causalrn, linear-causalrn: no MLP; transformer, linear-transformer: MLP of 4 x width; lstm: cells of the width; hybrid: Linear CausalRN
    blocks, one or (from depth 4 on) two of them CausalRN. hidden: of the relation models, None: the width. Learned positions in all.
    ValueError for an unknown name, listing the known ones, and for several heads of an LSTM.

    >>> model("causalrn", vocab_size=29, context=34).width
    192
    >>> [type(mixer).__name__ for mixer in model("hybrid", vocab_size=29, context=34, depth=3).mixers]
    ['LinearCausalRNConfig', 'CausalRNConfig', 'LinearCausalRNConfig']
    """
    exact, linear = nn.CausalRNConfig(hidden, heads), nn.LinearCausalRNConfig(hidden, heads)
    # A third and two thirds of the way up; in the middle where there is room for one only.
    places = (depth // 3, 2 * depth // 3) if depth >= 4 else (depth // 2,)
    mixers: dict[str, nn.CausalMixerConfig | tuple[nn.CausalMixerConfig, ...]] = {
        "causalrn": exact,
        "linear-causalrn": linear,
        "transformer": nn.AttentionConfig(heads=heads),
        "linear-transformer": nn.LinearAttentionConfig(heads=heads),
        "lstm": nn.LSTMConfig(),
        "hybrid": tuple(exact if block in places else linear for block in range(depth)),
    }
    if name not in mixers:
        raise ValueError(f"unknown mixer {name!r}; known ones are {', '.join(mixers)}")
    if name == "lstm" and heads != 1:
        raise ValueError(f"heads={heads}: an LSTM has no heads; leave them out")
    mlp = 4 * width if name in ("transformer", "linear-transformer") else None
    return nn.ModelConfig(vocab_size, width, depth, context, mixers[name], mlp=mlp)
