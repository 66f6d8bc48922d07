"""The loss of a linear or angular head from its features, without the (N, K) logits in memory.

    loss = mohs.linear_loss(features, weight, labels, loss="gce:q=0.7")
    loss = mohs.FusedHead(mohs.ArcFaceHead(512, 1_000_000, scale=64.0, margin=0.5), "cross_entropy")(features, labels)

Values and gradients are those of the head followed by the loss. Any loss that is a curve of the margin can be fused, since a
row then enters the loss through two numbers: its label's logit and log Σ exp of the others. A margin head changes the first
alone: CosFace subtracts s m from it, ArcFace replaces it by s cos(θ_y + m). Logits exist for a chunk of rows at a time
(`_chunked.py`); the mean or sum of a curve takes three matrix products, as the plain head does, anything else four.
"""

from __future__ import annotations
