"""Least squares of sums of a table's cells by a dense matrix, one row for each measured number."""

from __future__ import annotations

import numpy as np


def ancestors(parents):
    """Node of each depth above every leaf: a list of integer arrays, root first."""
    found = [np.arange(parents[-1].size if parents else 1)]
    for up in reversed(parents):
        found.insert(0, up[found[0]])
    return found


def rows(parents, windows, depth, each):
    """Rows of the design matrix over cells (window, leaf), leaf fastest: one for each node, windows outermost."""
    node = ancestors(parents)[depth]
    count = parents[depth - 1].size if depth else 1
    tree = (node[None, :] == np.arange(count)[:, None]).astype(float)
    return np.kron(np.eye(windows) if each else np.ones((1, windows)), tree)


def fitted(measured, parents, windows):
    """Best linear unbiased cells and their covariance matrix; measured: [(depth, each, values, variance)]."""
    design = np.vstack([rows(parents, windows, depth, each) for depth, each, _, _ in measured])
    noisy = np.concatenate([values.ravel() for _, _, values, _ in measured])
    weights = np.concatenate([np.full(values.size, 1.0 / variance) for _, _, values, variance in measured])
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    root = np.sqrt(weights)
    cells = np.linalg.lstsq(root[:, None] * design, root * noisy, rcond=None)[0]
    return cells, covariance
