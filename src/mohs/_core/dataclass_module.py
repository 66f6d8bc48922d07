"""A Module declared as a dataclass: its fields are its settings, and its repr is the call that rebuilds it.

    @module_of(focal_loss)                        the function that `forward` calls
    class FocalLoss(LossModule):                  the kind of Module: the fields that all losses share, and `forward`
        gamma: float = 2.0                        its own fields, keyword-only
        def setup(self) -> None: ...              validates the fields, adds parameters and buffers

Pickling, deepcopy and `torch.compile` work as for any Module, and type checkers see the constructor's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from torch import Tensor, nn

M = TypeVar("M", bound="DataclassModule")


class DataclassModule(nn.Module):
    """The base of the Modules that `module_of` declares."""

    function: ClassVar[Callable[..., Tensor]]
    formula: ClassVar[str]
    purpose: ClassVar[str]
    names: ClassVar[tuple[str, ...]]  # of the fields

    def __post_init__(self) -> None:
        nn.Module.__init__(self)
        self.setup()

    def setup(self) -> None:
        """Validate the fields; add parameters and buffers. Runs at the end of construction."""

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments with which `forward` calls the function: the fields, unless a class says otherwise."""
        return self.values_of(self.names)

    def values_of(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The values of these fields by name, without the search for parameters and buffers, which takes longer."""
        held = self.__dict__
        buffers = held["_buffers"]
        return {name: held[name] if name in held else buffers[name] if name in buffers else getattr(self, name) for name in names}

    def __repr__(self) -> str:
        shown = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in shown)})"


def _shown(value: Any) -> str:
    """The expression of a value: a list for a tensor that a list makes again, which is one of integers or the default dtype."""
    if not isinstance(value, Tensor):
        return repr(value)
    listed = value.dtype in (torch.get_default_dtype(), torch.int64)
    return repr(value.tolist()) if listed else f"torch.tensor({value.tolist()}, dtype={value.dtype})"


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def module_of(function: Callable[..., Tensor]) -> Callable[[type[M]], type[M]]:
    """Declare the class as the Module of this function: a dataclass whose annotated attributes are keyword-only settings."""

    def declare(cls: type[M]) -> type[M]:
        own = get_annotations(cls)
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        declared: dict[str, Field[Any]] = cls.__dataclass_fields__  # type: ignore[attr-defined]
        # dataclass puts inherited fields first; here: positional ones, then the class's own, then the keywords it inherits
        ordered = sorted(declared.items(), key=lambda item: (bool(item[1].kw_only), item[0] not in own))
        cls.__dataclass_fields__ = dict(ordered)  # type: ignore[attr-defined]
        cls.function = staticmethod(function)
        cls.names = tuple(f.name for f in fields(cls))  # type: ignore[arg-type]
        return cls

    return declare
