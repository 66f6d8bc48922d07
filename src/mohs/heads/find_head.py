"""The head of any classifier: its last linear layer, with that layer's weights and the features that enter it.

    found = find_head(model);  outputs, features = found.run(images)          found.weight (K, D), found.bias (K,) or None

The head is the last registered `nn.Linear` or head of this package, except auxiliary classifiers (`aux1`, `AuxLogits`,
`head_dist`); `layer="name"` selects another. A model whose last layer is a convolution (SqueezeNet) has no such head. A
model wrapped by `torch.compile` is run in its original form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mohs._core.forward import logits_of
from mohs.heads import HEADS

LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, *HEADS.values())
AUXILIARY = re.compile(r"(^|[._])aux|head_dist", re.IGNORECASE)
SHOWN = 8  # number of names that an error lists


@dataclass(frozen=True, eq=False)
class FoundHead:
    """A linear layer of a model, by name."""

    name: str
    model: nn.Module = field(repr=False)

    @property
    def module(self) -> nn.Module:
        return self.model.get_submodule(self.name)

    @property
    def weight(self) -> Tensor:
        """The current class weights (K, D)."""
        return self.module.weight  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        """The current class biases (K,); None if the layer has no bias."""
        return getattr(self.module, "bias", None)

    def run(self, *inputs: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        """Run the model once, in its own mode and the caller's gradient mode, and return the features that enter the head.

        Returns:
            The model's outputs, and features (N, D); further dimensions are flattened into N.

        Raises:
            ValueError: If the head did not run exactly once.
        """
        outputs, features, _ = self._run(*inputs, **kwargs)
        return outputs, features

    def logits_and_features(self, *inputs: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """`run` with the logits of the outputs: this head's, if a model of several heads returns them all."""
        outputs, features, own = self._run(*inputs, **kwargs)
        several = outputs.values() if isinstance(outputs, Mapping) else outputs if isinstance(outputs, tuple | list) else ()
        return own if any(one is own for one in several) else logits_of(outputs), features

    def _run(self, *inputs: Any, **kwargs: Any) -> tuple[Any, Tensor, Tensor]:
        """The model's outputs, features (N, D), and the outputs of the head."""
        passes: list[tuple[Tensor, Tensor]] = []

        def catch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            passes.append((args[0] if args else next(iter(kwargs.values())), output))

        with self.module.register_forward_hook(catch, with_kwargs=True):
            outputs = self.model(*inputs, **kwargs)
        if len(passes) != 1:
            times = f"{len(passes)} times" if passes else "not at all"
            raise ValueError(
                f"layer {self.name!r} ran {times} in one forward pass, but features can be read only if it runs once: "
                'choose another with find_head(model, layer="name"), or pass features and weight to score_features'
            )
        entered, own = passes[0]
        return outputs, entered.reshape(-1, entered.shape[-1]), own


def find_head(model: nn.Module, *, layer: str | None = None) -> FoundHead:
    """Find the head of a classifier: its last linear layer.

    Args:
        model: The classifier.
        layer: Name of the layer, as in `model.named_modules()`; by default the last linear layer.

    Returns:
        The layer's `name`, `module`, `weight` (K, D) and `bias` (K,) or None; `run(inputs)` gives outputs and features.

    Raises:
        ValueError: If there is no such linear layer.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper would not call the hook
    kind = type(model).__name__
    if layer is None:
        main = [name for name in linear_layers(model) if not AUXILIARY.search(name)]
        if not main:
            raise ValueError(
                f"{kind} has no linear layer that could be its head ({candidates(model)}): "
                'pass layer="name" of a linear layer, or features and weight to score_features'
            )
        layer = main[-1]
    found, module = FoundHead(layer, model), dict(model.named_modules(remove_duplicate=False)).get(layer)
    if not isinstance(module, LINEAR):
        what = "not a layer" if module is None else f"a {type(module).__name__}"
        raise ValueError(f"layer={layer!r} is {what} in {kind}: pass the name of a linear layer ({candidates(model)})")
    if is_lazy(found.weight):
        raise ValueError(f"layer {layer!r} of {kind} is lazy and has no weights yet: run the model once before find_head")
    return found


def linear_layers(model: nn.Module) -> list[str]:
    """The names of all linear layers, auxiliary ones included, in order of registration."""
    return [name for name, module in model.named_modules() if isinstance(module, LINEAR)]


def candidates(model: nn.Module) -> str:
    """For an error: the names of the linear layers, or else of the layers at the end of the model, the last first."""
    names = [repr(name) for name in linear_layers(model)]
    if names:
        return f"linear layers, the last first: {', '.join(names[: -SHOWN - 1 : -1])}"
    leaves = [f"{name!r} {type(m).__name__}" for name, m in model.named_modules() if not list(m.children())]
    return f"it has none; layers, the last first: {', '.join(leaves[: -SHOWN - 1 : -1])}"
