"""The head of any classifier: its last linear layer, with that layer's weights and the features that enter it.

    found = find_head(model);  outputs, features = found.run(images)          found.weight (K, D), found.bias (K,) or None

The last in the order of registration among `nn.Linear` and the heads of this package, but for auxiliary classifiers
(`aux1`, `AuxLogits`, `head_dist`); `layer="name"` says which, where that is not the one meant. A model whose last layer
is a convolution (SqueezeNet) has no head in this sense. A model wrapped by `torch.compile` is run in its original form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from mohs.heads import HEADS

LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, *HEADS.values())
AUXILIARY = re.compile(r"(^|[._])aux|head_dist", re.IGNORECASE)
SHOWN = 8  # how many names an error lists


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
        """The class weights (K, D), as they are now."""
        return self.module.weight  # type: ignore[return-value]

    @property
    def bias(self) -> Tensor | None:
        """The class biases (K,), as they are now; None where the layer has none."""
        return getattr(self.module, "bias", None)

    def run(self, *inputs: Any, **kwargs: Any) -> tuple[Any, Tensor]:
        """The model's outputs and the features (N, D) that entered the head; further dimensions are flattened into N.

        One forward pass, in the model's own mode and the caller's gradient mode. ValueError unless the head ran once.
        """
        entered: list[Tensor] = []

        def catch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered.append(args[0] if args else next(iter(kwargs.values())))

        with self.module.register_forward_pre_hook(catch, with_kwargs=True):
            outputs = self.model(*inputs, **kwargs)
        if len(entered) != 1:
            times = f"{len(entered)} times" if entered else "not at all"
            raise ValueError(
                f"layer {self.name!r} ran {times} in one forward pass, where its features are caught if it runs once: "
                'pass another to find_head(model, layer="name"), or features and weight to score_features'
            )
        return outputs, entered[0].reshape(-1, entered[0].shape[-1])  # (N, D)


def find_head(model: nn.Module, *, layer: str | None = None) -> FoundHead:
    """The last linear layer of the model, or the one named (as in `model.named_modules()`)."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper would not call the hook
    kind = type(model).__name__
    if layer is None:
        main = [name for name in linear_layers(model) if not AUXILIARY.search(name)]
        if not main:
            raise ValueError(
                f"{kind} has no linear layer to take for its head ({candidates(model)}): "
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
    """The names of all linear layers, auxiliary ones too, in the order of registration."""
    return [name for name, module in model.named_modules() if isinstance(module, LINEAR)]


def candidates(model: nn.Module) -> str:
    """For an error: the linear layers' names, the last first; where there are none, the layers that the model ends with."""
    names = [repr(name) for name in linear_layers(model)]
    if names:
        return f"linear layers, the last first: {', '.join(names[: -SHOWN - 1 : -1])}"
    leaves = [f"{name!r} {type(m).__name__}" for name, m in model.named_modules() if not list(m.children())]
    return f"there is none; the layers, the last first: {', '.join(leaves[: -SHOWN - 1 : -1])}"
