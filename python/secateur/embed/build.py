"""Build the graphs of a BERT sentence encoder from its weights with numpy and onnx, without torch.

A graph takes `input_ids` (int64, shape (batch, length), texts of one length, nothing padded) and gives
`token_vectors` (float32, (batch, length, hidden)): the layers of Devlin et al. 2018 with GELU. Since nothing is padded
and every row is quantised by a scale of its own, a text's vectors are the same in every batch, bit for bit. The same
weights give the same bytes of graph.

    python -m secateur.embed.build WEIGHTS --out FOLDER

writes what `secateur model fetch` keeps; with `--wheel` the package of data `secateur-minilm`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from secateur.embed import distil, static, wheel
from secateur.embed.model import ABOUT, GRAPHS, MINILM, MODELS, STATIC, Model, Precision

VERSION = 2
"""Raised whenever the same weights would give another graph."""

Weights = dict[str, NDArray[np.float32]]

_HEAD = 32
"""Values of an attention head: 12 heads in a hidden size of 384."""
_LAYER_NORM_EPSILON = 1e-12
_CONTRIB = "com.microsoft"
"""The domain of onnxruntime's own operators."""
_GELU_SHIFT = 0.17
"""GELU is nowhere less than -0.17; shifted by it, its whole range goes into unsigned integers."""
_SMOOTHING = "smoothing.npy"


def build(weights: Path, graph: Path, precision: Precision = "fp32") -> None:
    """Write a graph.

    Args:
        weights: The official `model.safetensors`.
        graph: The `.onnx` file to write; about 90 MB for MiniLM in "fp32", 23 MB in "int8".
        precision: "fp32", or "int8" for weights of 8 bits with a scale a column and activations of 8 bits with a scale
            a row, measured as the model runs.
    """
    onnx.save((Exact if precision == "fp32" else Quantised)(load_file(weights)).model(), graph)


class _Rows(NamedTuple):
    """What goes into linear layers: values (float32, or unsigned integers) and, if quantised, the scale of each row."""

    values: str
    scales: str = ""
    zero: int = 0


class _Builder(ABC):
    """The parts of the graph that both precisions have in common."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
        self._hidden = weights["embeddings.LayerNorm.weight"].size
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        """The whole graph."""
        self._prepare()
        normal = self._normalised("embeddings.LayerNorm", self._embeddings())
        for layer in range(self._layers):
            normal = self._layer(f"encoder.layer.{layer}.", *normal)
        self._named("token_vectors", "Identity", [normal[1]])
        output: list[str | int | None] = ["batch", "length", self._hidden]
        graph = helper.make_graph(
            self._nodes,
            "sentence encoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])],
            [helper.make_tensor_value_info("token_vectors", TensorProto.FLOAT, output)],
            list(self._constants.values()),
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(_CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _layer(self, prefix: str, rows: str, residual: str) -> tuple[str, str]:
        attended = self._linear(f"{prefix}attention.output.dense", self._row_wise(self._attention(prefix, rows)))
        rows, residual = self._normalised(f"{prefix}attention.output.LayerNorm", self._op("Add", [attended, residual]))
        narrow = self._linear(f"{prefix}output.dense", self._row_wise_positive(self._gelu(prefix, rows)))
        return self._normalised(f"{prefix}output.LayerNorm", self._op("Add", [narrow, residual]))

    def _attention(self, prefix: str, rows: str) -> str:
        entered = self._row_wise(rows)
        names = [f"{prefix}attention.self.{name}" for name in ("query", "key", "value")]
        products = [self._product(name, entered) for name in names]
        biases = [self._weights[f"{name}.bias"] for name in names]
        bias = self._constant(f"{prefix}attention.self.bias", np.concatenate(biases))
        return self._op(
            "MultiHeadAttention",
            [*products, bias],
            domain=_CONTRIB,
            num_heads=self._hidden // _HEAD,
            scale=1 / math.sqrt(_HEAD),
        )

    def _embeddings(self) -> str:
        prefix = "embeddings."
        # One segment only: its vector is added to every position once and for all.
        positions = (
            self._weights[f"{prefix}position_embeddings.weight"]
            + self._weights[f"{prefix}token_type_embeddings.weight"][0]
        )
        length = self._op("Slice", [self._op("Shape", ["input_ids"]), self._integers(1), self._integers(2)])
        slots = self._op(
            "Slice", [self._constant("positions", positions), self._integers(0), length, self._integers(0)]
        )
        return self._op("Add", [self._words(f"{prefix}word_embeddings.weight"), slots])

    def _layer_norm(self, name: str, hidden: str, scale: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        inputs = [hidden, self._constant(f"{name}.weight", scale), self._constant(f"{name}.bias", bias)]
        return self._op("LayerNormalization", inputs, axis=-1, epsilon=_LAYER_NORM_EPSILON)

    def _linear(self, name: str, rows: _Rows) -> str:
        return self._op("Add", [self._product(name, rows), self._bias(name)])

    # What the precisions do each in their own way:

    @abstractmethod
    def _prepare(self) -> None:
        """Add what is computed once a run."""

    @abstractmethod
    def _words(self, name: str) -> str:
        """The word embedding of each token."""

    @abstractmethod
    def _normalised(self, name: str, hidden: str) -> tuple[str, str]:
        """A layer normalisation: what goes into linear layers, and what is added to their results."""

    @abstractmethod
    def _row_wise(self, hidden: str) -> _Rows:
        """What a linear layer reads."""

    @abstractmethod
    def _row_wise_positive(self, hidden: str) -> _Rows:
        """The same for what the GELU gives."""

    @abstractmethod
    def _product(self, name: str, rows: _Rows) -> str:
        """A linear layer without its bias."""

    @abstractmethod
    def _bias(self, name: str) -> str:
        """The bias of a linear layer."""

    @abstractmethod
    def _gelu(self, prefix: str, rows: str) -> str:
        """The wide part of a layer: linear, then GELU."""

    # How nodes and constants are named:

    def _op(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        return self._named(f"{operator}_{len(self._nodes)}", operator, inputs, **attributes)

    def _named(self, output: str, operator: str, inputs: list[str], **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], name=output, **attributes))
        return output

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _integers(self, *values: int) -> str:
        return self._constant(f"integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _number(self, value: float, dtype: type[np.generic] = np.float32) -> str:
        return self._constant(f"{dtype.__name__}_{value}", np.array(value, dtype))

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name


class Exact(_Builder):
    """Everything in float32."""

    def _prepare(self) -> None:
        pass  # nothing is

    def _words(self, name: str) -> str:
        return self._op("Gather", [self._weight(name), "input_ids"])

    def _normalised(self, name: str, hidden: str) -> tuple[str, str]:
        normal = self._layer_norm(name, hidden, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])
        return normal, normal

    def _row_wise(self, hidden: str) -> _Rows:
        return _Rows(hidden)

    _row_wise_positive = _row_wise

    def _product(self, name: str, rows: _Rows) -> str:
        # Stored as (out, in); a matrix product wants (in, out).
        weight = self._constant(f"{name}.weight", self._weights[f"{name}.weight"].T)
        return self._op("MatMul", [rows.values, weight])

    def _bias(self, name: str) -> str:
        return self._weight(f"{name}.bias")

    def _gelu(self, prefix: str, rows: str) -> str:
        return self._op("Gelu", [self._linear(f"{prefix}intermediate.dense", self._row_wise(rows))])


class Quantised(_Builder):
    """Products of 8-bit integers.

    Some channels of BERT are ten times as large as the others and would leave those few steps in a row's scale. They
    are divided by powers of two in the layer normalisation that makes them, and the weights that read them multiplied
    (Xiao et al. 2023, SmoothQuant). The powers were measured on texts in many languages, see benches/fit_smoothing.py.
    """

    def __init__(self, weights: Weights) -> None:
        super().__init__(weights)
        with resources.files("secateur.embed").joinpath(_SMOOTHING).open("rb") as stream:
            exponents = np.load(stream)
        if exponents.shape != (2 * self._layers, self._hidden):
            exponents = np.zeros((2 * self._layers, self._hidden), np.int8)  # another model
        self._smoothing = np.ldexp(np.float32(1), exponents)
        self._quantised: dict[str, tuple[NDArray[np.int8], NDArray[np.float32]]] = {}

    def _prepare(self) -> None:
        shape = self._op("Concat", [self._op("Shape", ["input_ids"]), self._integers(1)], axis=0)
        middle = helper.make_tensor("value", TensorProto.UINT8, [1], [128])
        self._zeros = self._op("ConstantOfShape", [shape], value=middle)

    def _words(self, name: str) -> str:
        rows, scales = _quantise(self._weights[name].T)
        values = self._op("Gather", [self._constant(f"{name}.quantised", rows.T), "input_ids"])
        column = self._constant(f"{name}.scales", scales[:, None])
        return self._op(
            "Mul", [self._op("Cast", [values], to=TensorProto.FLOAT), self._op("Gather", [column, "input_ids"])]
        )

    def _normalised(self, name: str, hidden: str) -> tuple[str, str]:
        scale, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        index = self._reader(name)
        if index is None:
            normal = self._layer_norm(name, hidden, scale, bias)
            return normal, normal
        smoothing = self._smoothing[index]
        smooth = self._layer_norm(name, hidden, scale / smoothing, bias / smoothing)
        return smooth, self._op("Mul", [smooth, self._constant(f"{name}.smoothing", smoothing)])

    def _reader(self, name: str) -> int | None:
        """Which row of the smoothing belongs to a layer normalisation; None to the last, which nothing reads."""
        parts = name.split(".")
        index = 0 if parts[0] == "embeddings" else 2 * int(parts[2]) + (1 if parts[3] == "attention" else 2)
        return index if index < len(self._smoothing) else None

    def _row_wise(self, hidden: str) -> _Rows:
        return self._rows(hidden, self._op("Abs", [hidden]), 128)

    def _row_wise_positive(self, hidden: str) -> _Rows:
        shifted = self._op("Add", [hidden, self._number(_GELU_SHIFT)])
        return self._rows(shifted, shifted, 0)

    def _rows(self, hidden: str, magnitude: str, zero: int) -> _Rows:
        most = self._op("ReduceMax", [magnitude, self._integers(-1)], keepdims=1)
        step = self._op("Mul", [most, self._number(1 / (127 if zero else 255))])
        # A row of zeros has a scale too.
        scales = self._op("Max", [step, self._number(1e-20)])
        inputs = [hidden, scales, *([self._zeros] if zero else [])]
        block = self._hidden if zero else 4 * self._hidden
        return _Rows(self._op("QuantizeLinear", inputs, axis=-1, block_size=block), scales, zero)

    def _product(self, name: str, rows: _Rows) -> str:
        weight, scales = self._weight_and_scales(name)
        product = self._op(
            "MatMulIntegerToFloat",
            [
                rows.values,
                self._constant(f"{name}.quantised", weight),
                self._number(1.0),
                self._constant(f"{name}.scales", scales),
                self._number(rows.zero, np.uint8),
            ],
            domain=_CONTRIB,
        )
        return self._op("Mul", [product, rows.scales])

    def _bias(self, name: str) -> str:
        bias = self._weights[f"{name}.bias"]
        if name.endswith(".output.dense") and "attention" not in name:
            # What went in was shifted.
            weight, scales = self._weight_and_scales(name)
            shift = _GELU_SHIFT * weight.sum(axis=0, dtype=np.int64) * scales.astype(np.float64)
            bias = (bias - shift).astype(np.float32)
        return self._constant(f"{name}.bias", bias)

    def _gelu(self, prefix: str, rows: str) -> str:
        name = f"{prefix}intermediate.dense"
        # By tanh: 5e-4 off at most, far below a step of 8 bits, and faster.
        return self._op(
            "FastGelu", [self._product(name, self._row_wise(rows)), self._weight(f"{name}.bias")], domain=_CONTRIB
        )

    def _weight_and_scales(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        if name not in self._quantised:
            weight = self._weights[f"{name}.weight"].T
            layer = int(name.split(".")[2])
            if "attention.self" in name:
                weight = weight * self._smoothing[2 * layer][:, None]
            elif "intermediate" in name:
                weight = weight * self._smoothing[2 * layer + 1][:, None]
            self._quantised[name] = _quantise(weight)
        return self._quantised[name]


def _quantise(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric integers of 8 bits with a scale a column."""
    scales = np.abs(weight).max(axis=0) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(weight / scales).astype(np.int8), scales


def about(model: Model) -> dict[str, object]:
    """What a folder of built files says of itself."""
    return {
        "model": model.repository,
        "revision": model.revision,
        "licence": model.licence,
        "sha256": dict(model.sha256),
        "graph": VERSION,
        "static": static.VERSION,
    }


def build_all(
    weights: Path, folder: Path, model: Model = MINILM, *, say: Callable[[str], object] = lambda _: None
) -> None:
    """Write everything that is made of a model's weights: both graphs, the tokenizer, for MiniLM the static table.

    Args:
        weights: A folder with `model.safetensors` and `tokenizer.json`.
        folder: Where to; made if it is not there.
        model: Which model they are of.
        say: Is told in a line what happens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights / "tokenizer.json", folder / "tokenizer.json")
    for precision, name in GRAPHS.items():
        say(f"building the {precision} graph")
        build(weights / "model.safetensors", folder / name, precision)
    names = ["tokenizer.json", *GRAPHS.values()]
    if model.name == MINILM.name:
        say("distilling the static table (takes some twenty seconds)")
        distil.save(distil.distil(folder / GRAPHS["fp32"], folder / "tokenizer.json"), folder / STATIC)
        names.append(STATIC)
    described = about(model) | {"bytes": {name: (folder / name).stat().st_size for name in names}}
    (folder / ABOUT).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files of a model into a folder, or those of MiniLM that are published as a wheel."""
    parser = argparse.ArgumentParser(prog="python -m secateur.embed.build", description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, help="a folder with the official model.safetensors and tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    parser.add_argument("--model", choices=sorted(MODELS), default=MINILM.name, help="whose weights they are")
    parser.add_argument("--wheel", action="store_true", help="write the wheel of data secateur-minilm instead")
    options = parser.parse_args(arguments)
    if options.wheel:
        with tempfile.TemporaryDirectory() as scratch:
            build_all(options.weights, Path(scratch), say=_say)
            sys.stdout.write(f"{wheel.write(Path(scratch), options.out)}\n")
    else:
        build_all(options.weights, options.out, MODELS[options.model], say=_say)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
