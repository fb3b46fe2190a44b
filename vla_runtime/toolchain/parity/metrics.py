"""The numbers that parity compares. Pure functions of arrays."""

import numpy as np


def token_cosines(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Cosine of each token (last axis) of two tensors of one shape, flat; where both are zero it is 1.

    Tensors whose last axis is shorter than 8 have no embeddings: they are compared as one vector.
    """
    width = reference.shape[-1] if reference.ndim and reference.shape[-1] >= 8 else reference.size
    a = reference.reshape(-1, width).astype(np.float64)
    b = candidate.reshape(-1, width).astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    both_zero = (np.abs(a).max(axis=1) == 0) & (np.abs(b).max(axis=1) == 0)
    cosines = np.einsum("ij,ij->i", a, b) / np.where(norms > 0, norms, 1)
    return np.where(both_zero, 1.0, cosines)


def relative_error(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Return |candidate - reference| / |reference|, Frobenius norms."""
    a, b = reference.astype(np.float64), candidate.astype(np.float64)
    return float(np.linalg.norm(b - a) / max(np.linalg.norm(a), 1e-30))


def token_kl(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """KL(reference || candidate) in nats of each row of logits (last axis), flat."""
    p, q = _log_softmax(reference), _log_softmax(candidate)
    return np.sum(np.exp(p) * (p - q), axis=-1).ravel()


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
