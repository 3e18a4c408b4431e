"""Measure which channels of MiniLM are large, and write the powers of two that the int8 graph divides them by.

    python benches/fit_smoothing.py WEIGHTS [--data FOLDER] [--out FILE]

WEIGHTS is the official `model.safetensors` beside its `tokenizer.json`; FOLDER holds `multilingual.jsonl.gz` and the
like, it is `../shared/data` where that is present, else the samples of tests/data are read. The result is
`python/secateur/embed/smoothing.npy`: int8 of shape (2 · layers, hidden), a row for what each layer's attention reads
and one for what its feed-forward part reads.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from real_texts import default_folder, texts_by_source
from secateur.embed import build

TEXTS_A_SOURCE = 150
"""Twice as many texts change one power in fifty."""
BALANCE = 0.8
"""Share of a channel's size that goes into the weights; from 0.5 to 0.8 Spearman differs by 0.0001."""


def largest(graph: onnx.ModelProto, token_ids: Iterator[list[int]]) -> NDArray[np.float32]:
    """Largest magnitude of each channel in what each linear layer reads, (2 · layers, hidden)."""
    names = [node.output[0] for node in graph.graph.node if node.op_type == "LayerNormalization"][:-1]
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "graph.onnx")
        onnx.save(graph, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    most: NDArray[np.float32] = np.float32(0)  # type: ignore[assignment]
    for ids in token_ids:
        outputs = session.run(names, {"input_ids": np.array([ids])})
        most = np.maximum(most, np.stack([np.abs(output).max(axis=(0, 1)) for output in outputs]))
    return most


def exponents(weights: build.Weights, most: NDArray[np.float32]) -> NDArray[np.int8]:
    """Powers of two that even out the channels and the weights that read them (SmoothQuant, equation 4)."""
    rows = []
    for index, channels in enumerate(most):
        prefix = f"encoder.layer.{index // 2}."
        names = ["intermediate.dense"] if index % 2 else [f"attention.self.{n}" for n in ("query", "key", "value")]
        reads = np.max([np.abs(weights[f"{prefix}{name}.weight"]).max(axis=0) for name in names], axis=0)
        logarithms = BALANCE * np.log2(channels) - (1 - BALANCE) * np.log2(reads)
        rows.append(np.rint(logarithms - logarithms.mean()).astype(np.int8))
    return np.stack(rows)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--data", type=Path, default=default_folder())
    parser.add_argument("--out", type=Path, default=Path(build.__file__).with_name("smoothing.npy"))
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.weights.with_name("tokenizer.json")))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    weights = load_file(options.weights)
    texts = [text for source in texts_by_source(options.data) for text in source[:TEXTS_A_SOURCE]]
    graph = build.Exact(weights).model()
    most = largest(graph, (tokenizer.encode(text[:4000]).ids for text in texts))
    found = exponents(weights, most)
    np.save(options.out, found)
    print(f"{len(texts):,} texts; exponents from {found.min()} to {found.max()}; written to {options.out.name}")


if __name__ == "__main__":
    main()
