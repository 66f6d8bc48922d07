"""skorch's classifier with mohs losses: its `predict_proba` returns probabilities.

    NeuralNetClassifier(module, criterion=mohs.GeneralizedCrossEntropyLoss, criterion__q=0.5).fit(X, y).predict_proba(X)

skorch converts logits to probabilities only for the criteria of torch that it knows; with others its own classifier
returns the logits. This one uses the probabilities that the loss is defined by: softmax, or the square of a softmax
alternative. Everything else is skorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mohs.losses._drop_in import LossModule
from mohs.losses.cross_entropy import CrossEntropyLoss
from mohs.losses.softmax_alternatives import SphericalLoss, TaylorLoss, log_square

try:
    from skorch import classifier
except Exception as error:  # a broken installation raises more than ImportError
    raise ImportError(f"mohs.integrations.skorch needs skorch, which did not import ({error}): pip install skorch") from error


class NeuralNetClassifier(classifier.NeuralNetClassifier):
    """`skorch.NeuralNetClassifier` that knows the probabilities of mohs losses; the arguments are skorch's.

    Args:
        module: The network; it returns logits (N, K).
        criterion: A loss of mohs or of torch; default: `mohs.CrossEntropyLoss`.
        predict_nonlinearity: "auto" for the probabilities that the criterion defines, or as in skorch.
    """

    def __init__(self, module: Any, *args: Any, criterion: Any = CrossEntropyLoss, **settings: Any) -> None:
        super().__init__(module, *args, criterion=criterion, **settings)

    def _get_predict_nonlinearity(self) -> Callable[[Tensor], Tensor]:
        criterion = getattr(self.criterion_, "_orig_mod", self.criterion_)
        if self.predict_nonlinearity == "auto" and isinstance(criterion, LossModule):
            return probabilities(criterion)
        return super()._get_predict_nonlinearity()  # type: ignore[no-any-return]


def probabilities(loss: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function from logits (N, K) to the class probabilities (N, K) by which this loss is defined."""
    if isinstance(loss, TaylorLoss):
        return lambda logits: torch.softmax(log_square(1 + logits, eps=1.0), 1)
    if isinstance(loss, SphericalLoss):
        return lambda logits: torch.softmax(log_square(logits, eps=loss.eps), 1)
    return partial(torch.softmax, dim=1)
