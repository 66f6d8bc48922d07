"""Measure indexes of nearest neighbors: time, recall of the ten nearest, and share of copies found; all with one thread.

    python benchmarks/neighbor_index.py --size 30000 --out results/neighbor_index.csv       needs faiss-cpu, usearch, hnswlib

Each index that is installed is built over made embeddings (`datalab.made_embeddings`) and asked for the neighbors of all of them.
The graphs have the same settings: 16 links, 64 candidates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datalab import made_embeddings, write
from mohs.hardness.neighbors import nearest_with_cosines

from machine import machine

Array = np.ndarray[Any, Any]
LINKS, CANDIDATES, NEAREST, CHECKED = 16, 64, 10, 500


def exact(x: Array) -> Array:
    return nearest_with_cosines(torch.from_numpy(x), k=NEAREST + 1, references=len(x))[0].numpy()


def faiss_hnsw(x: Array) -> Array:
    import faiss

    graph = faiss.IndexHNSWFlat(x.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = graph.hnsw.efSearch = CANDIDATES
    graph.add(x)
    return graph.search(x, NEAREST + 1)[1]


def faiss_ivf(x: Array) -> Array:
    import faiss

    coarse = faiss.IndexFlatIP(x.shape[1])
    lists = faiss.IndexIVFFlat(coarse, x.shape[1], int(4 * np.sqrt(len(x))), faiss.METRIC_INNER_PRODUCT)
    lists.cp.niter, lists.cp.max_points_per_centroid, lists.nprobe = 8, 64, 16
    lists.train(x)
    lists.add(x)
    return lists.search(x, NEAREST + 1)[1]


def usearch(x: Array) -> Array:
    from usearch.index import Index

    graph = Index(
        ndim=x.shape[1], metric="ip", dtype="f32", connectivity=LINKS, expansion_add=CANDIDATES, expansion_search=CANDIDATES
    )
    graph.add(np.arange(len(x)), x, threads=1)
    return graph.search(x, NEAREST + 1, threads=1).keys.astype(np.int64)


def hnswlib(x: Array) -> Array:
    import hnswlib as library

    graph = library.Index("ip", x.shape[1])
    graph.init_index(len(x), ef_construction=CANDIDATES, M=LINKS)
    graph.set_num_threads(1)
    graph.add_items(x)
    graph.set_ef(CANDIDATES)
    return graph.knn_query(x, NEAREST + 1)[0].astype(np.int64)


INDEXES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "exact": ("torch", exact), "faiss HNSW": ("faiss", faiss_hnsw), "faiss IVF, 16 lists": ("faiss", faiss_ivf),
    "usearch": ("usearch", usearch), "hnswlib": ("hnswlib", hnswlib),
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path("results/neighbor_index.csv"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(1)
    about, x, rows = machine(), made_embeddings(chosen.size, 0), []
    asked = np.random.default_rng(0).choice(len(x) - len(x) // 20, CHECKED, replace=False)
    true = np.argsort(-(x[asked] @ x.T), axis=1)[:, 1 : NEAREST + 1]
    copies = len(x) // 20
    for name, (package, search) in INDEXES.items():
        if find_spec(package) is None:
            continue
        began = time.process_time()
        near = search(x)
        seconds = time.process_time() - began
        recall = np.mean([len(set(near[i]) & set(own)) / NEAREST for i, own in zip(asked, true, strict=True)])
        found = np.mean([len(x) - copies + i in near[i] for i in range(copies)])
        rows.append({"index": name, "embeddings": len(x), "CPU seconds": round(seconds, 1), "recall": round(float(recall), 3),
                     "copies found": round(float(found), 3)})  # fmt: skip
        print(rows[-1], flush=True)
    write(rows, chosen.out, about)
