"""Fused forward and backward passes behind the losses: fewer (N, K) arrays than plain autograd, and faster."""
