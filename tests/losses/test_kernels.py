"""The Triton kernels against the plain version in float64: on a GPU, or interpreted on the CPU (TRITON_INTERPRET=1).

`test_interpreted` runs this file, and the tests of every loss and head, over the interpreted kernels in a process of its own.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mohs
from mohs.losses.cross_entropy import cross_entropy
from mohs.losses.encouraging import encouraging
from mohs.losses.focal import focal
from mohs.losses.gce import gce
from mohs.losses.gradient_rescaling import gradient_rescaling
from mohs.losses.mae import mae
from mohs.losses.symmetric import symmetric
from mohs.losses.truncated_gce import truncated_gce
from mohs.margin import _choose

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
KERNELS = pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a GPU or TRITON_INTERPRET=1")
ROOT = Path(__file__).parents[2]


def name_of(curve: Any) -> str:
    """A name without addresses, the same in every process."""
    given = getattr(curve, "keywords", {})
    return "-".join([getattr(curve, "func", curve).__name__, *(f"{key}={value}" for key, value in given.items())])


CURVES = [
    cross_entropy,
    mae,
    partial(gce, q=0.7),
    partial(gce, q=0.0),
    partial(gce, q=1.0),
    partial(truncated_gce, q=0.7, threshold=0.3),
    partial(focal, gamma=2.0),
    partial(focal, gamma=0.0),
    partial(symmetric, alpha=0.1, beta=1.0),
    encouraging,
    partial(encouraging, log_end=1.0),
    partial(encouraging, log_end=1.0, start=0.5),
    partial(encouraging, log_end=0.0, bonus=0.5),
    partial(gradient_rescaling, beta=8.0, lam=0.5),
    partial(gradient_rescaling, beta=2.0, lam=0.0, transform="identity", eps=0.0),
]
LOSSES = ["cross_entropy", "gce", "focal", "encouraging", "symmetric", "mae", "truncated_gce"]


def check_both(
    found: list[tuple[torch.Tensor, torch.Tensor]], exact: torch.Tensor, slope: torch.Tensor, dtype: torch.dtype
) -> None:
    """Values and gradients of two calls are near those of the reference, and equal."""
    for value, grad in found:
        assert far(value, exact) < 1e-6
        assert far(grad, slope) < max(3e-6, rounding(dtype))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def rounding(dtype: torch.dtype) -> float:
    """The largest relative error of a gradient in this dtype; the interpreter cuts bfloat16 off instead of rounding it."""
    return {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7 if INTERPRETED else 2**-8}[dtype]


def far(x: Tensor, y: Tensor) -> float:
    """Relative distance of two tensors; NaN in the same places and the last bit of a subnormal number count as 0."""
    limits = torch.finfo(x.dtype)
    x, y = x.double().nan_to_num(1e3), y.double().nan_to_num(1e3)
    distance = ((x - y).abs() - limits.tiny * limits.eps).clamp(min=0)
    return float(distance.norm() / y.norm().clamp(min=1e-300))


def run(function, logits: Tensor, g: float = 1.0) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().requires_grad_()
    value = function(leaf)
    (grad,) = torch.autograd.grad(value, leaf, torch.full_like(value, g))
    return value.detach(), grad


def reference(function, logits: Tensor, monkeypatch: pytest.MonkeyPatch, g: float = 1.0) -> tuple[Tensor, Tensor]:
    """Value and gradient of the plain version in float64."""
    with monkeypatch.context() as patch:
        patch.setattr(_choose, "ENABLED", False)
        return run(function, logits.double(), g)


def batch(n: int, classes: int, *places: int, dtype=torch.float32, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + classes)
    logits = (scale * torch.randn(n, classes, *places, generator=generator)).to(dtype)
    labels = torch.randint(classes, (n, *places), generator=generator)
    return logits.to(DEVICE), labels.to(DEVICE)


@pytest.mark.slow
def test_interpreted() -> None:
    if INTERPRETED:
        pytest.skip("this is the process of its own")
    pytest.importorskip("triton")
    files = ["tests/losses/test_kernels.py", "tests/heads/test_fused.py", "tests/losses/test_all.py"]
    files.append("tests/hardness/test_angular.py::test_the_kernel_agrees_with_the_plain_version")
    some = "(cross_entropy-0 or gce-0 or rescaling-0) and not vmap and not compiles and not derivatives"
    chosen = f"not repeat and not 40000 and (not test_all or ({some}))"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning", "-k", chosen]
    answer = subprocess.run(
        [*command, *files], cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-1000:]


@KERNELS
@pytest.mark.gpu
class TestKernels:
    @pytest.mark.parametrize("curve", CURVES, ids=name_of)
    def test_curves(self, curve, monkeypatch) -> None:
        """Every curve and its slope, from margins of −30 to 30: two classes whose difference is the margin."""
        m = torch.linspace(-30, 30, 241, device=DEVICE)
        logits, labels = torch.stack([m, torch.zeros_like(m)], 1), torch.zeros(241, dtype=torch.long, device=DEVICE)
        from mohs.losses._curve_loss import curve_loss

        function = partial(curve_loss, curve, labels=labels, reduction="none")
        (value, grad), (exact, slope) = run(function, logits), reference(function, logits, monkeypatch)
        torch.testing.assert_close(value.double(), exact, rtol=2e-6, atol=1e-12)
        torch.testing.assert_close(grad.double(), slope, rtol=4e-6, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("shape", [(7, 5), (300, 10), (3, 6, 2, 5), (2, 40_000)], ids=str)
    def test_losses(self, shape, weighted, reduction, dtype, monkeypatch) -> None:
        if dtype == torch.float16 and shape[1] > 1000:
            pytest.skip("gradients of 1e-8 are not numbers of float16")
        logits, labels = batch(*shape, dtype=dtype)
        labels.view(-1)[1] = -100
        generator = torch.Generator().manual_seed(0)
        each = torch.rand(shape[0], generator=generator).to(DEVICE) if weighted else None
        weight = torch.rand(shape[1], generator=generator) if weighted else None
        for name in LOSSES if INTERPRETED and shape == (7, 5) else LOSSES[:2]:  # a GPU compiles each; tiles are alike for all
            loss = mohs.create_loss(name, reduction=reduction, weight=weight).to(DEVICE)
            function = lambda z, loss=loss: loss(z, labels, sample_weight=each)
            (value, grad), (exact, slope) = run(function, logits, 2.0), reference(function, logits, monkeypatch, 2.0)
            assert far(value, exact) < 1e-6
            assert grad.dtype == dtype
            assert far(grad, slope) < rounding(dtype)
            assert not grad.movedim(1, -1)[labels == -100].any()

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("shape", [(40, 10), (2, 40_000)], ids=str)
    def test_label_smoothing(self, shape, weighted, monkeypatch) -> None:
        logits, labels = batch(*shape)
        labels[1] = -100
        weight = torch.rand(shape[1]) if weighted else None
        loss = mohs.CrossEntropyLoss(label_smoothing=0.1, weight=weight).to(DEVICE)
        function = lambda z: loss(z, labels)
        (value, grad), (exact, slope) = run(function, logits), reference(function, logits, monkeypatch)
        assert far(value, exact) < 1e-6
        assert far(grad, slope) < 2e-6

    @pytest.mark.parametrize(
        "view", [lambda z: z[::2], lambda z: z[:, ::3], lambda z: z.T.contiguous().T, lambda z: z[:1].expand(12, -1)]
    )
    def test_strides(self, view, monkeypatch) -> None:
        logits = view(batch(24, 30)[0])
        labels = torch.arange(2 * len(logits), device=DEVICE)[::2] % logits.shape[1]
        for function in (lambda z: mohs.FocalLoss()(z, labels), lambda z: mohs.margin(z, labels).sum()):
            (value, grad), (exact, slope) = run(function, logits), reference(function, logits, monkeypatch)
            assert far(value, exact) < 1e-6
            assert far(grad, slope) < 1e-6

    @pytest.mark.parametrize("reg", [mohs.ADR(), mohs.ADR(tau=1), mohs.ADR(detach_phi=True), mohs.EntropyPenalty()], ids=str)
    @pytest.mark.parametrize("shape", [(40, 10), (3, 6, 2, 5), (3, 1000), (2, 9000)], ids=str)
    def test_certainty(self, reg, shape, monkeypatch) -> None:
        for dtype in (torch.float32, torch.bfloat16) if shape[1] <= 256 else (torch.float32,):
            generator = torch.Generator().manual_seed(0)
            logits = torch.stack([torch.randperm(shape[1], generator=generator) for _ in range(math.prod(shape) // shape[1])])
            logits = (logits / 8).view(shape[0], *shape[2:], shape[1]).movedim(-1, 1).to(dtype).to(DEVICE)  # no ties
            (value, grad), (exact, slope) = run(reg, logits, 2.0), reference(reg, logits, monkeypatch, 2.0)
            assert far(value, exact) < 3e-6
            assert far(grad, slope) < max(3e-6, rounding(logits.dtype))

    @pytest.mark.parametrize("reg", [mohs.ADR(), mohs.EntropyPenalty()], ids=str)
    @pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
    @pytest.mark.parametrize("shape", [(40, 10), (3, 1000), (2, 9000)], ids=str)
    def test_certainty_of_sure_and_unsure_predictions(self, reg, scale, shape, monkeypatch) -> None:
        logits, _ = batch(*shape, scale=scale)
        (value, grad), (exact, slope) = run(reg, logits), reference(reg, logits, monkeypatch)
        assert far(value, exact) < 1e-6
        assert far(grad, slope) < 1e-6

    def test_extreme_logits(self, monkeypatch) -> None:
        inf, nan = torch.inf, torch.nan
        rows = [
            [0, -inf, 1],
            [0, -inf, -inf],
            [inf, 0, 0],
            [0, inf, 0],
            [nan, 0, 0],
            [0, 0, nan],
            [1e4, -1e4, 0],
            [-1e4, 1e4, 1e4],
        ]
        logits, labels = torch.tensor(rows, device=DEVICE), torch.zeros(8, dtype=torch.long, device=DEVICE)
        for name in LOSSES:
            loss = mohs.create_loss(name, reduction="none")
            with monkeypatch.context() as patch:
                patch.setattr(_choose, "ENABLED", False)
                exact = loss(logits, labels)
            torch.testing.assert_close(loss(logits, labels), exact, equal_nan=True)

    def test_labels_that_are_no_classes(self) -> None:
        logits, labels = batch(4, 5)
        labels[2] = 7
        if INTERPRETED:
            pytest.skip("on the CPU labels are validated")
        assert mohs.FocalLoss(reduction="none")(logits, labels).isnan().tolist() == [False, False, True, False]

    def test_second_derivatives_take_the_plain_version(self, monkeypatch) -> None:
        logits, labels = batch(5, 4)
        loss = mohs.FocalLoss()
        leaf = logits.requires_grad_()
        (grad,) = torch.autograd.grad(loss(leaf, labels), leaf, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), leaf)
        monkeypatch.setattr(_choose, "ENABLED", False)
        hessian = torch.autograd.functional.hessian(lambda z: loss(z, labels), leaf.detach()).view(20, 20)
        torch.testing.assert_close(second.view(-1), 2 * hessian @ grad.detach().view(-1), rtol=1e-4, atol=1e-6)

    def test_a_kept_graph_gives_the_same_gradient_again(self) -> None:
        logits, labels = batch(50, 10)
        leaf = logits.requires_grad_()
        value = 3 * mohs.FocalLoss()(leaf, labels)
        once = torch.autograd.grad(value, leaf, retain_graph=True)[0].clone()
        assert torch.equal(torch.autograd.grad(value, leaf, retain_graph=True)[0], once)
        assert torch.equal(torch.autograd.grad(value, leaf)[0], once)

    def test_results_repeat_exactly(self) -> None:
        logits, labels = batch(300, 700)
        first = run(lambda z: mohs.FocalLoss()(z, labels), logits)
        again = run(lambda z: mohs.FocalLoss()(z, labels), logits)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])

    @pytest.mark.parametrize("name", ["gce", "adr"])
    def test_many_rows(self, name, monkeypatch) -> None:
        """What many rows of many classes take: a sum and a multiplication of their own."""
        from mohs.losses._kernels import certainty_kernel, fused_loss, launch
        from mohs.margin import _triton

        for module in (launch, certainty_kernel):
            monkeypatch.setattr(module, "MOST_SUMMED", 0)
        monkeypatch.setattr(fused_loss, "_plans", {})
        monkeypatch.setattr(_triton, "SMALL", 0)
        launch.loss_plan.cache_clear()
        certainty_kernel._plan.cache_clear()
        logits, labels = batch(5, 9000)
        labels[3] = -100
        function = mohs.ADR() if name == "adr" else lambda z: mohs.create_loss(name)(z, labels)
        (value, grad), (exact, slope) = run(function, logits, 2.0), reference(function, logits, monkeypatch, 2.0)
        launch.loss_plan.cache_clear()
        certainty_kernel._plan.cache_clear()
        assert far(value, exact) < 1e-6
        assert far(grad, slope) < 3e-6

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("transform", ["exp", "identity"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_rescaling_in_parts(self, weighted, transform, reduction, dtype, monkeypatch) -> None:
        """The weights of all rows by programs that wait for one another; twice, for the counters are as before."""
        from mohs.losses._kernels import rescaling

        monkeypatch.setattr(rescaling, "FEW", 0)
        logits, labels = batch(150, 20, dtype=dtype)
        labels[::9] = -100
        weight = torch.linspace(0.5, 1.5, 20) if weighted else None
        each = torch.linspace(0.1, 1.0, 150, device=DEVICE) if weighted else None
        double = None if each is None else each.double()
        loss = mohs.GradientRescalingLoss(transform=transform, reduction=reduction, weight=weight).to(DEVICE)
        found = [run(lambda z: loss(z, labels, sample_weight=each), logits, 2.0) for _ in range(2)]
        exact_loss = mohs.GradientRescalingLoss(transform=transform, reduction=reduction, weight=weight).double().to(DEVICE)
        exact, slope = reference(lambda z: exact_loss(z, labels, sample_weight=double), logits, monkeypatch, 2.0)
        check_both(found, exact, slope, dtype)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("name", ["gce", "self_paced:kind=linear"])
    def test_rows_in_turn(self, name, weighted, reduction, dtype, monkeypatch) -> None:
        """Many tiles in few programs, which sum values and weights in the one launch; twice, for the counters are as before."""
        from mohs.losses._kernels import fused_loss, launch

        programs = 3 if weighted else 20
        monkeypatch.setattr(launch, "MOST_SUMMED", programs)
        monkeypatch.setattr(launch, "TURNS", programs)
        monkeypatch.setattr(launch, "COUNTED", 0)
        launch.loss_plan.cache_clear()
        monkeypatch.setattr(fused_loss, "_plans", {})
        logits, labels = batch(29, 600, dtype=dtype)
        labels[::9] = -100
        options: dict[str, Any] = {"reduction": reduction}
        each = None
        if weighted:
            options["weight"] = torch.linspace(0.5, 1.5, 600)
            each = torch.linspace(0.1, 1.0, 29, device=DEVICE)
        loss = mohs.create_loss(name, **options).to(DEVICE).eval()
        exact_loss = mohs.create_loss(name, **options).double().to(DEVICE).eval()
        if "self_paced" in name:
            loss.threshold.fill_(7.0)
            exact_loss.threshold.fill_(7.0)
        found = [run(lambda z: loss(z, labels, sample_weight=each), logits, 2.0) for _ in range(2)]
        (plan,) = fused_loss._plans.values()
        assert plan.launcher.programs == programs
        assert plan.sums
        assert plan.denominator is None
        launch.loss_plan.cache_clear()
        double = None if each is None else each.double()
        exact, slope = reference(lambda z: exact_loss(z, labels, sample_weight=double), logits, monkeypatch, 2.0)
        check_both(found, exact, slope, dtype)

    def test_self_paced_near_the_threshold(self, monkeypatch) -> None:
        """λ − ce of a loss just below λ, which leaves few of its digits."""
        off = []
        for seed in range(12):
            torch.manual_seed(seed)
            logits, labels = 3 * torch.randn(17, 1024, device=DEVICE), torch.randint(1024, (17,), device=DEVICE)
            logits = logits.bfloat16()
            ce = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="none")
            loss = mohs.SelfPacedLoss(kind="linear", reduction="none").to(DEVICE).eval()
            loss.threshold.fill_(ce.min() + 0.03)
            value = loss(logits, labels)
            with monkeypatch.context() as patch:
                patch.setattr(_choose, "ENABLED", False)
                off.append(far(value, loss(logits.double(), labels)))
        assert max(off) < 1e-6  # 1e-5 where the difference is taken of two rounded numbers

    def test_several_groups_of_programs_add_up(self) -> None:
        from mohs.losses._kernels.launch import denominator_of

        labels = torch.arange(280_000, device=DEVICE) % 10  # 1024 of them a program, of which 256 are a group
        weight = torch.linspace(0.1, 1.0, 10, device=DEVICE)
        labels[::7] = -100
        exact = weight.double()[labels[labels >= 0]].sum()
        add_up = denominator_of(len(labels), 10, -100, weight=True, sample_weight=False)
        for _ in range(2):  # the counters are as before
            assert far(add_up(labels, weight, None), exact) < 1e-6

    @pytest.mark.parametrize("beta", [100.0, 500.0])
    def test_steep_rescaling(self, beta, monkeypatch) -> None:
        """Weights whose exponent is large: of one launch, and beyond its range."""
        logits, labels = batch(12, 5)
        function = partial(mohs.GradientRescalingLoss(beta=beta), target=labels)
        (value, grad), (exact, slope) = run(function, logits), reference(function, logits, monkeypatch)
        assert far(value, exact) < 1e-7 * beta
        assert far(grad, slope) < 1e-6 * beta

    @pytest.mark.parametrize("kind", ["hard", "linear"])
    @pytest.mark.parametrize("rows", [1, 40, 300])
    @pytest.mark.parametrize(("held", "once"), [(8192, 4096), (8192, 0), (64, 0)])
    def test_self_paced(self, kind, rows, held, once, monkeypatch) -> None:
        """λ over several batches with ignored and NaN rows, and the loss for it."""
        from mohs.losses._kernels import pacing

        def plainly(function, logits: Tensor) -> tuple[Tensor, Tensor]:  # in float32, for λ may be the loss of an example
            with monkeypatch.context() as patch:
                patch.setattr(_choose, "ENABLED", False)
                return run(function, logits)

        monkeypatch.setattr(pacing, "HELD", held)
        monkeypatch.setattr(pacing, "ONCE", once)
        ours, plain = (mohs.SelfPacedLoss(kind=kind, percentile=0.7, reduction="sum").to(DEVICE) for _ in range(2))
        for seed in range(3):
            logits, labels = batch(rows + seed, 10)
            labels[::5] = -100
            if rows > 1:
                logits[1] = torch.nan
            value, grad = run(partial(ours, target=labels), logits)
            exact, slope = plainly(partial(plain, target=labels), logits)
            torch.testing.assert_close(ours.threshold, plain.threshold, rtol=1e-6, atol=0.0)
            assert far(value, exact) < 2e-6
            assert far(grad, slope) < 2e-6
        ours.eval()
        plain.eval()
        last = ours.threshold.clone()
        value, grad = run(partial(ours, target=labels), logits)
        exact, slope = plainly(partial(plain, target=labels), logits)
        assert torch.equal(ours.threshold, last)
        assert far(value, exact) < 2e-6
        assert far(grad, slope) < 2e-6

    @pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
    @pytest.mark.parametrize("rows", [37, 150])
    def test_self_paced_in_parts(self, rows, reduction, monkeypatch) -> None:
        """The percentile by counts of 8 bits, of rows with ties, weights and ignored ones, and the gradient of a scaled loss."""
        from mohs.losses._kernels import pacing

        logits, labels = batch(rows, 6, scale=2.0)
        logits[rows // 2 :] = logits[: rows - rows // 2].clone()
        labels[rows // 2 :] = labels[: rows - rows // 2].clone()
        labels[::7] = -100
        each = torch.linspace(0.1, 1.0, rows, device=DEVICE)
        found = []
        for held, once in ((8192, 0), (8192, 4096), (8192, 4096), (0, 0), (0, 0)):  # the counters are as before
            monkeypatch.setattr(pacing, "HELD", held)
            monkeypatch.setattr(pacing, "ONCE", once)
            loss = mohs.SelfPacedLoss(percentile=0.6, kind="linear", reduction=reduction, weight=torch.linspace(0.5, 1.0, 6)).to(
                DEVICE
            )
            found.append((*run(lambda z, loss=loss: loss(z, labels, sample_weight=each), logits, 2.0), loss.threshold))
        exact = mohs.SelfPacedLoss(percentile=0.6, kind="linear", reduction=reduction, weight=loss.weight.double()).to(DEVICE)
        value, slope = reference(lambda z: exact(z, labels, sample_weight=each.double()), logits, monkeypatch, 2.0)
        for ours in found:
            assert far(ours[2], exact.threshold) < 2e-7
            assert far(ours[0], value) < 1e-6
            assert far(ours[1], slope) < 1e-6
        for place in (1, 3):
            for first, again in zip(found[place], found[place + 1], strict=True):
                assert torch.equal(first, again)

    def test_off(self, monkeypatch) -> None:
        assert _choose.takes(batch(2, 3)[0])
        monkeypatch.setattr(_choose, "ENABLED", False)
        assert not _choose.takes(batch(2, 3)[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnTheGpu:
    def test_compiles_without_a_graph_break(self) -> None:
        torch._dynamo.reset()
        logits, labels = batch(64, 100)
        loss = mohs.FocalLoss()
        compiled = torch.compile(loss, fullgraph=True)
        ours, theirs = run(lambda z: compiled(z, labels), logits), run(lambda z: loss(z, labels), logits)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
        (grad,) = torch.autograd.grad(loss(logits.requires_grad_(), labels), logits)
        assert grad.isfinite().all()

    def test_autocast(self) -> None:
        layer, labels = torch.nn.Linear(8, 10, device="cuda"), batch(12, 10)[1]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = layer(torch.randn(12, 8, device="cuda"))
            value = mohs.FocalLoss()(logits, labels)
        assert logits.dtype == torch.bfloat16
        assert value.dtype == torch.float32
        value.backward()
        assert layer.weight.grad.isfinite().all()

    @pytest.mark.parametrize("first", [True, False])
    @pytest.mark.parametrize("once", [0, 4096])
    def test_losses_over_the_batch_share_launches_with_others(self, once, first, monkeypatch) -> None:
        """Others pass tensors of their own where losses over the batch pass rows of one."""
        from mohs.losses._kernels import pacing

        monkeypatch.setattr(pacing, "ONCE", once)
        logits, labels = batch(61 + once % 7 + first, 6, scale=2.0)
        each = mohs.GeneralizedCrossEntropyLoss(reduction="none")

        def others() -> None:
            run(lambda z: each(z, labels).sum() + mohs.margin(z, labels).sum(), logits)

        def paced() -> tuple[Tensor, Tensor]:
            return run(partial(mohs.SelfPacedLoss(kind="linear").to(DEVICE), target=labels), logits)

        turns = (paced, others, paced) if first else (others, paced, others)
        found = [turn() for turn in turns]
        with monkeypatch.context() as patch:
            patch.setattr(_choose, "ENABLED", False)
            exact = paced()
        for value, grad in (one for one in found if one is not None):
            assert far(value, exact[0]) < 2e-6
            assert far(grad, exact[1]) < 2e-6

    @pytest.mark.parametrize("name", ["focal", "gradient_rescaling", "self_paced:decay=0", "gce", "adr"])
    @pytest.mark.parametrize("rows", [64, 10_000])
    def test_a_captured_graph_replays_on_new_logits(self, rows, name) -> None:
        logits, labels = batch(rows, 100)
        each = mohs.ADR() if name == "adr" else mohs.create_loss(name).cuda()
        loss = (lambda z, _: each(z)) if name == "adr" else each
        leaf = logits.clone().requires_grad_()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                leaf.grad = None
                loss(leaf, labels).backward()
        torch.cuda.current_stream().wait_stream(stream)
        leaf.grad, graph = None, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = loss(leaf, labels)
            value.backward()
        with torch.no_grad():
            leaf.copy_(2 * logits)
        other = torch.cuda.Stream()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            graph.replay()
            graph.replay()
        torch.cuda.current_stream().wait_stream(other)
        exact, grad = run(lambda z: loss(z, labels), 2 * logits)
        torch.testing.assert_close(value, exact)
        torch.testing.assert_close(leaf.grad, grad)

    @pytest.mark.parametrize("name", ["gradient_rescaling", "self_paced:kind=linear", "gce"])
    @pytest.mark.parametrize("rows", [8193, 65_536, 200_001])
    def test_programs_that_wait_for_one_another(self, rows, name, monkeypatch) -> None:
        logits, labels = batch(rows, 10)
        labels[::5] = -100
        first, again, exact = (mohs.create_loss(name).cuda() for _ in range(3))
        found = [run(partial(loss, target=labels), logits, 2.0) for loss in (first, again)]
        value, slope = reference(partial(exact.double(), target=labels), logits, monkeypatch, 2.0)
        for ours in found:
            assert far(ours[0], value) < 2e-6
            assert far(ours[1], slope) < 5e-6
        assert torch.equal(found[0][0], found[1][0])
        assert torch.equal(found[0][1], found[1][1])

    @pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
    @pytest.mark.parametrize("name", ["focal", "gradient_rescaling", "self_paced"])
    @pytest.mark.parametrize("rows", [64, 10_000])
    def test_no_host_synchronization(self, rows, name) -> None:
        logits, labels = batch(rows, 100)
        leaf, loss = logits.requires_grad_(), mohs.create_loss(name, weight=torch.rand(100)).cuda()
        loss(leaf, labels).backward()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss(leaf, labels).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
