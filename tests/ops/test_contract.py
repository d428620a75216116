"""What the ops refuse and what they say; explain, use_reference; transforms, opcheck, torch.compile, autocast, doctests."""

import doctest
import importlib
import pkgutil

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from relnet import ops
from relnet.ops import cpu_library
from relnet.ops.linear_sums import decayed_cumsum
from tests.assertions import assert_close, assert_same_bits
from tests.ops.oracles import make_mask


def draw(seed: int, *shape: int, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# Refusals: (message, source, target, arguments)

X = torch.zeros(2, 5, 6)
BAD_TENSORS = [
    (r"source is a list; give a tensor", [1.0], X, {}),
    (r"source has shape \(5, 6\); give \(batch, sources, width\)", X[0], X, {}),
    (r"target has shape \(2, 5, 6, 1\); give \(batch, targets, width\)", X, X[..., None], {}),
    (r"source has shape \(2, 0, 6\): length and width must be at least 1", X[:, :0], X, {}),
    (r"target has shape \(2, 5, 0\): length and width must be at least 1", X, X[..., :0], {}),
    (r"source is float16, .* use bfloat16 or float32 \(source.bfloat16\(\)\)", X.half(), X.half(), {}),
    (r"source is torch.int64; give float32, float64 or bfloat16", X.long(), X, {}),
    (r"source is torch.complex64; give", X.to(torch.complex64), X, {}),
    (r"source is torch.float32 and target is torch.float64; cast one", X, X.double(), {}),
    (r"source is on cpu and target on meta; move one", X, X.to("meta"), {}),
    (r"source \(2, 5, 6\) and target \(3, 5, 6\) differ in dimension 0", X, torch.zeros(3, 5, 6), {}),
    (r"source \(2, 5, 6\) and target \(2, 5, 7\) differ in dimension 2", X, torch.zeros(2, 5, 7), {}),
    (r"6 targets and 5 sources: a causal relation takes at most as many targets", X, torch.zeros(2, 6, 6), {}),
    (r"width 6 is not divisible by heads=4; choose heads that divide it", X, X, {"heads": 4}),
    (r"heads=0", X, X, {"heads": 0}),
    (r"heads=-2", X, X, {"heads": -2}),
    (r"heads=2.0", X, X, {"heads": 2.0}),
    (r"heads=True", X, X, {"heads": True}),
    (r"key_mask is list; give a bool tensor", X, X, {"key_mask": [[True] * 5] * 2}),
    (r"key_mask is torch.int64; give a bool tensor.*key_mask.bool\(\)", X, X, {"key_mask": torch.ones(2, 5).long()}),
    (r"key_mask has shape \(2, 4\); give \(batch, length\) = \(2, 5\)", X, X, {"key_mask": torch.ones(2, 4) > 0}),
    (r"key_mask has shape \(5,\); give", X, X, {"key_mask": torch.ones(5) > 0}),
    (r"key_mask is on meta; move it to cpu", X, X, {"key_mask": (torch.ones(2, 5) > 0).to("meta")}),
]
BAD_CHOICES = [
    (r"activation 'tanh' is unknown; choose from exp, relu, elu, gelu", {"activation": "tanh"}),
    (r"norm 'batch' is unknown; choose from exact, rms, approximate, none", {"norm": "batch"}),
    (r"norm None is unknown", {"norm": None}),
    (r"backend 'cuda' is unknown; choose from auto, reference, blocked, linear", {"backend": "cuda"}),
    (r"windows=\[2\] has not 2 entries; give one for each of the 2 heads", {"windows": [2], "heads": 2}),
    (r"windows=3 has not 1 entries", {"windows": 3}),
    (r"windows='3' has not 1 entries", {"windows": "3"}),
    (r"windows=\[0\] holds 0; a window is an integer of at least 1", {"windows": [0]}),
    (r"windows=\[-1\] holds -1", {"windows": [-1]}),
    (r"windows=\[1.5\] holds 1.5", {"windows": [1.5]}),
    (r"windows=\[True\] holds True", {"windows": [True]}),
    (r"windows=\[2\] need causal=True", {"windows": [2], "causal": False}),
    (r"backend 'linear' needs activation='exp'.*got activation='exp', norm='exact'", {"backend": "linear"}),
    (r"backend 'linear' needs.*'relu'", {"backend": "linear", "norm": "none", "activation": "relu"}),
    (r"backend 'linear' needs.*windows=\[2\]", {"backend": "linear", "norm": "none", "windows": [2]}),
]


@pytest.mark.parametrize(
    ("message", "source", "target", "arguments"), BAD_TENSORS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_every_op_refuses_tensors_that_do_not_fit(message, source, target, arguments):
    for op in (ops.relation_mean, ops.linear_relation, ops.explain):
        with pytest.raises(ValueError, match=message):
            op(source, target, **arguments)


@pytest.mark.parametrize(("message", "arguments"), BAD_CHOICES)
def test_relation_mean_refuses_choices_that_do_not_fit(message, arguments):
    for op in (ops.relation_mean, ops.explain):
        with pytest.raises(ValueError, match=message):
            op(X, X, **arguments)
        with ops.use_reference(), pytest.raises(ValueError, match=message):
            op(X, X, **arguments)


def test_a_refused_call_changes_nothing():
    with pytest.raises(ValueError, match="heads"):
        ops.relation_mean(X, X, heads=4)
    assert_same_bits(X, torch.zeros(2, 5, 6))


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        (r"norm 'exact' does not factorise; linear_relation takes 'approximate' or 'none'", {"norm": "exact"}),
        (r"norm 'rms' does not factorise", {"norm": "rms"}),
        (r"norm 'batch' is unknown", {"norm": "batch"}),
        (r"backend 'blocked' is unknown; choose from auto, reference", {"backend": "blocked"}),
        (r"a state needs causal=True", {"causal": False, "state": ops.LinearRelationState(X[:, 0], torch.ones(2).long())}),
        (r"the state has log_sum \(3, 6\) and count \(3,\); for this source give \(2, 6\) and \(2,\)",
         {"state": ops.LinearRelationState(torch.zeros(3, 6), torch.ones(3).long())}),
        (r"state is a tuple; give the LinearRelationState", {"state": (X[:, 0], torch.ones(2))}),
    ],
)  # fmt: skip
def test_linear_relation_refuses_what_does_not_fit(message, arguments):
    with pytest.raises(ValueError, match=message):
        ops.linear_relation(X, X, **arguments)


def test_linear_relation_takes_with_a_state_as_many_targets_as_sources():
    _, state = ops.linear_relation(X, X)
    with pytest.raises(ValueError, match="with a state give the new tokens only: 5 sources and 3 targets differ"):
        ops.linear_relation(X, X[:, :3], state=state)


Q = torch.zeros(2, 3, 5, 4)


@pytest.mark.parametrize(
    ("message", "query", "key", "value", "arguments"),
    [
        (r"query has shape \(3, 5, 4\); give \(batch, heads, length, width\)", Q[0], Q, Q, {}),
        (r"key has shape \(2, 3, 0, 4\)", Q, Q[:, :, :0], Q, {}),
        (r"value is float16", Q, Q, Q.half(), {}),
        (r"query is torch.float32 and key is torch.float64", Q, Q.double(), Q, {}),
        (r"query .* and key .* differ in dimension 2", Q[:, :, :4], Q, Q, {}),
        (r"query .* and key .* differ in dimension 3", Q[..., :2], Q, Q, {"causal": False}),
        (r"key .* and value .* differ in dimension 2", Q, Q, Q[:, :, :4], {}),
        (r"key .* and value .* differ in dimension 1", Q, Q, Q[:, :1], {}),
        (r"key_mask has shape \(5, 2\); give \(batch, length\) = \(2, 5\)", Q, Q, Q, {"key_mask": torch.ones(5, 2) > 0}),
        (r"a state needs causal=True", Q, Q, Q, {"causal": False, "state": ops.LinearAttentionState(Q[:, :, :4], Q[:, :, 0])}),
        (r"the state has key_value \(2, 3, 5, 4\) and key \(2, 3, 4\); for these keys give \(2, 3, 4, 4\)",
         Q, Q, Q, {"state": ops.LinearAttentionState(Q, Q[:, :, 0])}),
    ],
)  # fmt: skip
def test_linear_attention_refuses_what_does_not_fit(message, query, key, value, arguments):
    with pytest.raises(ValueError, match=message):
        ops.linear_attention(query, key, value, **arguments)


@pytest.mark.parametrize(
    ("message", "x"),
    [
        (r"x is float16, .*x.bfloat16\(\)", X.half()),
        (r"x is torch.int64", X.long()),
        (r"x is a float; give a tensor", 1.0),
        (r"x has shape \(\)", torch.tensor(1.0)),
        (r"x has shape \(2, 0\)", torch.zeros(2, 0)),
    ],
)
def test_plain_norm_refuses_what_has_no_norm(message, x):
    with pytest.raises(ValueError, match=message):
        ops.plain_norm(x)


# explain and use_reference


# What `auto` takes on this machine for float32 tensors where the sum does not factorise.
FASTEST = "blocked" if cpu_library.missing() else "cpu"


@pytest.mark.parametrize(
    ("arguments", "backend"),
    [
        ({}, FASTEST),
        ({"norm": "none"}, "linear"),
        ({"norm": "approximate", "heads": 2, "causal": False}, "linear"),
        ({"norm": "approximate", "windows": [None]}, "linear"),
        ({"norm": "approximate", "windows": [2]}, FASTEST),
        ({"norm": "none", "activation": "relu"}, FASTEST),
        ({"norm": "none", "backend": "blocked"}, "blocked"),
        ({"backend": "reference"}, "reference"),
    ],
)
def test_explain_names_the_backend_that_runs(arguments, backend):
    source, target = draw(0, 2, 5, 6, dtype=torch.float32), draw(1, 2, 5, 6, dtype=torch.float32)
    assert ops.explain(source, target, **arguments).startswith(f"{backend}: ")
    assert_same_bits(
        ops.relation_mean(source, target, **arguments),
        ops.relation_mean(source, target, **arguments | {"backend": backend}),
    )
    with ops.use_reference():
        assert ops.explain(source, target, **arguments).startswith("reference: ")


def test_explain_says_why_a_kernel_is_passed_over():
    x = draw(0, 2, 5, 6, dtype=torch.float64)
    text = ops.explain(x, x)
    assert text.startswith("blocked: ")
    if FASTEST == "cpu":
        assert "cpu: tensors are torch.float64" in text


def test_a_kernel_that_is_asked_for_and_cannot_be_used_raises(monkeypatch):
    with pytest.raises(ValueError, match=r"backend 'cpu' cannot be used: .*; use backend='auto'"):
        ops.relation_mean(X.double(), X.double(), backend="cpu")
    monkeypatch.setattr(cpu_library, "library", broken)
    x = draw(0, 2, 5, 6, dtype=torch.float32)
    with pytest.raises(ValueError, match="not built: there was no compiler"):
        ops.relation_mean(x, x, backend="cpu")
    assert ops.explain(x, x).startswith("blocked: ")
    assert "cpu: not built" in ops.explain()


def broken():
    raise RuntimeError("not built: there was no compiler")


def test_explain_alone_lists_backends_and_machine():
    text = ops.explain()
    for name in ("reference", "cpu", "triton", "blocked", "linear", torch.__version__, "threads"):
        assert str(name) in text
    with pytest.raises(ValueError, match="one of source and target"):
        ops.explain(X)


def test_use_reference_computes_by_the_definition_and_ends_with_the_block():
    source, target = draw(0, 2, 50, 6), draw(1, 2, 50, 6)
    reference = ops.relation_mean(source, target, backend="reference")
    log_mean, _ = ops.linear_relation(source, target, backend="reference")
    with ops.use_reference():
        with ops.use_reference():
            assert ops.in_reference()
        assert ops.in_reference()
        for backend in ("auto", "blocked"):
            assert_same_bits(ops.relation_mean(source, target, backend=backend), reference)
        assert_same_bits(ops.linear_relation(source, target)[0], log_mean)
    assert not ops.in_reference()
    with pytest.raises(RuntimeError, match="planted"), ops.use_reference():
        raise RuntimeError("planted")
    assert not ops.in_reference()


# Transforms

CALLS = {
    "blocked": lambda source, target: ops.relation_mean(source, target).sin().sum(),
    "linear": lambda source, target: ops.relation_mean(source, target, norm="none").sin().sum(),
    "linear_relation": lambda source, target: ops.linear_relation(source, target)[0].sin().sum(),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def forward_mode(call, source, target):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(call(forward_ad.make_dual(source, source), target)).tangent


TRANSFORMS = {
    "grad": lambda call, p, q: torch.func.grad(call)(p, q),
    "vjp": lambda call, p, q: torch.func.vjp(call, p, q)[1](torch.tensor(1.0))[0],
    "jacrev": lambda call, p, q: torch.func.jacrev(call)(p, q),
    "jvp": lambda call, p, q: torch.func.jvp(call, (p, q), (p, 0 * q))[1],
    "jacfwd": lambda call, p, q: torch.func.jacfwd(call)(p, q),
    "forward_ad": forward_mode,
    "grad of vmap": lambda call, p, q: torch.func.grad(lambda p: torch.func.vmap(call)(p, q).sum())(p),
}


@every_call
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_without_a_rule_raise_and_name_the_remedy_that_works(call, transform):
    source, target = draw(0, 2, 3, 4), draw(1, 2, 3, 4)
    if "vmap" in transform:
        source, target = source[:, None], target[:, None]
    with pytest.raises(NotImplementedError, match=r"with ops.use_reference\(\)"):
        TRANSFORMS[transform](call, source, target)
    with ops.use_reference():
        result = TRANSFORMS[transform](call, source, target)
    p = source.clone().requires_grad_()
    flat = [x.flatten(0, 1) for x in (p, target)] if "vmap" in transform else (p, target)
    (gradient,) = torch.autograd.grad(call(*flat), p)
    expected = gradient if result.shape == p.shape else (gradient * source).sum()
    assert_close(result, expected, 1e-5)


@every_call
def test_the_hessian_by_transforms_equals_the_one_by_autograd(call):
    source, target = draw(0, 1, 3, 4).double(), draw(1, 1, 3, 4).double()
    expected = torch.autograd.functional.hessian(lambda p: call(p, target), source)
    with ops.use_reference():
        assert_close(torch.func.hessian(call)(source, target), expected, 1e-11)
        assert_close(torch.func.jacrev(torch.func.jacfwd(call))(source, target), expected, 1e-11)


@every_call
def test_vmap_works(call):
    source, target = draw(0, 4, 2, 3, 4), draw(1, 4, 2, 3, 4)
    expected = torch.stack([call(p, q) for p, q in zip(source, target, strict=True)])
    assert_close(torch.func.vmap(call)(source, target), expected, 1e-6)
    with ops.use_reference():
        assert_close(torch.func.vmap(call)(source, target), expected, 1e-6)


@every_call
def test_ordinary_autograd_and_no_autograd_work(call):
    source, target = draw(0, 2, 3, 4).requires_grad_(), draw(1, 2, 3, 4)
    with torch.no_grad():
        assert not call(source, target).requires_grad
    with torch.inference_mode():
        assert_same_bits(call(source, target), call(source.detach(), target))
    rows = torch.autograd.grad(call(source, target), source, torch.tensor([1.0, 2.0]), is_grads_batched=True)[0]
    assert_close(rows[1], 2 * rows[0], 1e-6)


# torch.library and torch.compile


QUICK_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def opcheck_relation(backend: str, norm: str, windows: list[int], mask: str, checks: tuple[str, ...]) -> None:
    dtype = torch.float32 if backend == "cpu" else torch.float64
    source = draw(0, 2, 5, 6, dtype=dtype).requires_grad_()
    target = draw(1, 2, 4, 6, dtype=dtype).requires_grad_()
    key_mask = make_mask(mask, 2, 5)
    operator = getattr(torch.ops.relnet, f"relation_{backend}").default
    torch.library.opcheck(operator, (source, target, key_mask, "exp", norm, True, 2, windows, False), test_utils=checks)
    kept = operator(source, target, key_mask, "exp", norm, True, 2, windows, True)[1].detach()
    grad = draw(2, 2, 4, 6, dtype=dtype).requires_grad_()
    backward = getattr(torch.ops.relnet, f"relation_{backend}_backward").default
    arguments = (grad, source, target, key_mask, kept, "exp", norm, True, 2, windows)
    torch.library.opcheck(backward, arguments, test_utils=checks)


every_operator = pytest.mark.parametrize("backend", sorted({"blocked", FASTEST}))


@every_operator
@pytest.mark.parametrize("norm", ["exact", "rms", "none"])
@pytest.mark.parametrize(("windows", "mask"), [([2, 0], "left"), ([], "none")])
def test_the_custom_ops_pass_opcheck(backend, norm, windows, mask):
    opcheck_relation(backend, norm, windows, mask, QUICK_CHECKS)
    source, target = (draw(seed, 2, 5, 6).requires_grad_() for seed in (0, 1))
    keeping = (source, target, make_mask(mask, 2, 5), "exp", norm, True, 2, windows, True)
    # What is kept is unspecified at invalid pairs, so that two runs may differ there: not the whole of opcheck.
    operator = getattr(torch.ops.relnet, f"relation_{backend}").default
    torch.library.opcheck(operator, keeping, test_utils=QUICK_CHECKS)


@pytest.mark.slow
@every_operator
@pytest.mark.parametrize(("norm", "windows", "mask"), [("exact", [2, 0], "left"), ("none", [], "none")])
def test_the_custom_ops_pass_the_rest_of_opcheck(backend, norm, windows, mask):
    """The one check that is left traces forward and backward by torch.compile's means with every dimension unknown."""
    opcheck_relation(backend, norm, windows, mask, ("test_aot_dispatch_dynamic",))


def test_the_decayed_sum_passes_opcheck():
    torch.library.opcheck(decayed_cumsum, (draw(0, 2, 5, 3).sigmoid(), draw(1, 2, 5, 3).requires_grad_()))


def everything(source, target, mask):
    exact = ops.relation_mean(source, target, heads=2, windows=[2, None], key_mask=mask)
    linear = ops.relation_mean(source, target, norm="approximate", heads=2, key_mask=mask)
    log_mean, state = ops.linear_relation(source, target, key_mask=mask)
    log_mean, state = ops.linear_relation(source, target, key_mask=mask, state=state)
    heads = source[:, None]
    attended, _ = ops.linear_attention(heads, heads, target[:, None], key_mask=mask)
    return ops.plain_norm(exact) + linear + log_mean.exp() + attended[:, 0] + state.log_sum[:, None].exp()


def assert_compiles(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(everything, fullgraph=True, backend=backend, dynamic=dynamic)
    for T in (6, 9) if dynamic else (6,):
        mask = make_mask("right", 3, T)
        results = []
        for function in (everything, compiled):
            source, target = draw(0, 3, T, 8).requires_grad_(), draw(1, 3, T, 8).requires_grad_()
            y = function(source, target, mask)
            results.append((y, *torch.autograd.grad(y.square().sum(), (source, target))))
        for got, want in zip(results[1], results[0], strict=True):
            assert_close(got, want, 1e-5)
    torch._dynamo.reset()


def test_all_ops_trace_into_one_graph_equal_to_eager():
    assert_compiles("aot_eager", dynamic=False)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_all_ops_compile_into_one_graph_equal_to_eager(dynamic):
    assert_compiles("inductor", dynamic)


def test_a_compiled_forward_mode_derivative_raises_too():
    """It would be zeros in silence."""
    torch._dynamo.reset()
    source, target = draw(0, 2, 3, 4), draw(1, 2, 3, 4)
    compiled = torch.compile(
        lambda p: torch.func.jvp(lambda p: CALLS["blocked"](p, target), (p,), (p,))[1], backend="eager"
    )
    with pytest.raises(NotImplementedError, match="forward-mode"):
        compiled(source)
    torch._dynamo.reset()


# autocast


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_no_bit(dtype):
    def results():
        source, target = (
            draw(0, 3, 40, 8, dtype=dtype).requires_grad_(),
            draw(1, 3, 40, 8, dtype=dtype).requires_grad_(),
        )
        heads = source[:, None]
        outputs = [
            ops.relation_mean(source, target),
            ops.relation_mean(source, target, norm="none"),
            ops.relation_mean(source, target, backend="reference"),
            ops.linear_relation(source, target)[0],
            ops.linear_attention(heads, heads, target[:, None])[0],
            ops.linear_attention(heads, heads, target[:, None], causal=False)[0],
            ops.plain_norm(source),
        ]
        return outputs, (source, target)

    with torch.autocast("cpu", torch.bfloat16):
        inside, inside_inputs = results()
    outside, outside_inputs = results()
    for got, want in zip(inside, outside, strict=True):
        assert got.dtype == dtype
        assert_same_bits(got, want)
    gradients = [
        torch.autograd.grad(sum(y.float().sin().sum() for y in outputs), inputs)
        for outputs, inputs in ((inside, inside_inputs), (outside, outside_inputs))
    ]
    for got, want in zip(*gradients, strict=True):
        assert_same_bits(got, want)


# Documentation

# One file needs an optional package at import, and has no examples.
NAMES = [module.name for module in pkgutil.iter_modules(ops.__path__) if module.name != "relation_triton_kernels"]
MODULES = [importlib.import_module(f"relnet.ops.{name}") for name in NAMES]


def test_the_examples_in_the_documentation_run():
    attempted = 0
    for module in MODULES:
        result = doctest.testmod(module, globs=vars(module) | {"torch": torch})
        assert result.failed == 0, module.__name__
        attempted += result.attempted
    assert attempted >= 10


@pytest.mark.parametrize(
    "name", ["explain", "linear_attention", "linear_relation", "plain_norm", "relation_mean", "use_reference"]
)
def test_every_public_function_has_an_example(name):
    assert ">>>" in (getattr(ops, name).__doc__ or "")


@pytest.mark.parametrize("backend", sorted({"blocked", FASTEST}))
def test_who_watches_the_calls_sees_the_operators(backend):
    """In plain eager code kernels are called past PyTorch's dispatcher; a tracer or a mode must not get that way."""
    source = draw(0, 1, 4, 6, dtype=torch.float32).requires_grad_()

    def slope(x):
        y = ops.relation_mean(x, x, backend=backend)
        return torch.autograd.grad(y.sum(), x)[0]

    called = {str(node.target) for node in make_fx(slope)(source).graph.nodes}
    assert {f"relnet.relation_{backend}.default", f"relnet.relation_{backend}_backward.default"} <= called
    mode = FakeTensorMode()
    fake = mode.from_tensor(source.detach())
    with mode:
        assert ops.relation_mean(fake, fake, backend=backend).shape == (1, 4, 6)
