"""Numerics behind the losses: fused forward and backward passes."""
