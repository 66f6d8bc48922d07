"""Triton kernels of the losses: a whole loss, its reduction and its gradient in one read and one write of the logits."""
