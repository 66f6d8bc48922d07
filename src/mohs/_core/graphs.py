"""Graphs of PyTorch Geometric as items of a data set, without importing it: code that has such an item has imported it.

is_graph(item)               whether an item, or a batch of them, is a torch_geometric `Data`
collate_graphs(items)        one disjoint graph of several
graph_inputs(model, graph)   the graph itself, or x, edge_index, batch, ... if these are the names of the model's arguments
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Any

from torch import nn


def is_graph(item: Any) -> bool:
    """Whether this is a `torch_geometric.data.Data`, a batch of several included."""
    geometric = sys.modules.get("torch_geometric.data")
    return geometric is not None and isinstance(item, geometric.Data)


def collate_graphs(items: Sequence[Any]) -> Any:
    """Several graphs as one, as PyTorch Geometric's own DataLoader makes it."""
    return sys.modules["torch_geometric.data"].Batch.from_data_list(list(items))


def graph_inputs(model: nn.Module, graph: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments and keywords with which the model is called for this graph."""
    names = inspect.signature(model.forward).parameters
    if "edge_index" not in names:
        return (graph,), {}
    entries = graph.to_dict()
    return (), {name: entries[name] for name in names if name in entries}
