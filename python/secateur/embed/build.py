"""Build the MiniLM graph from the official weights with numpy and onnx, without torch.

The graph takes `input_ids` and `attention_mask` (int64, shape (batch, length)) and gives `sentence_embedding`
(float32, shape (batch, 384)): six BERT layers as in Devlin et al. 2018 with GELU by the error function, the mean
over the mask, L2 norm 1. Standard operators only; the same weights give the same bytes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

VERSION = 1
"""Raised whenever the same weights would give another graph."""

_HIDDEN = 384
_HEADS = 12
_LAYERS = 6
_LAYER_NORM_EPSILON = 1e-12
_MASKED = -1e9
"""Added to the score of a padded position: its softmax is zero in float32."""


def build(weights: Path, graph: Path) -> None:
    """Write the graph.

    Args:
        weights: The official `model.safetensors`.
        graph: The `.onnx` file to write, about 90 MB.
    """
    onnx.save(_Builder(load_file(weights)).model(), graph)


class _Builder:
    def __init__(self, weights: dict[str, NDArray[np.float32]]) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def model(self) -> onnx.ModelProto:
        hidden = self._embeddings()
        bias = self._attention_bias()
        for layer in range(_LAYERS):
            hidden = self._layer(f"encoder.layer.{layer}.", hidden, bias)
        self._pool(hidden)
        shape = ["batch", "length"]
        graph = helper.make_graph(
            self._nodes,
            "minilm",
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
            [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", _HIDDEN])],
            list(self._constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def _embeddings(self) -> str:
        weights, prefix = self._weights, "embeddings."
        # One segment only: its vector is added to every position once and for all.
        positions = weights[f"{prefix}position_embeddings.weight"] + weights[f"{prefix}token_type_embeddings.weight"][0]
        words = self._op("Gather", [self._weight(f"{prefix}word_embeddings.weight"), "input_ids"])
        length = self._op("Slice", [self._op("Shape", ["input_ids"]), self._integers(1), self._integers(2)])
        slots = self._op(
            "Slice", [self._constant("positions", positions), self._integers(0), length, self._integers(0)]
        )
        return self._layer_norm(f"{prefix}LayerNorm", self._op("Add", [words, slots]))

    def _attention_bias(self) -> str:
        mask = self._op("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        padded = self._op("Sub", [self._number("one", 1.0), mask])
        bias = self._op("Mul", [padded, self._number("masked", _MASKED)])
        return self._op("Unsqueeze", [bias, self._integers(1, 2)])

    def _layer(self, prefix: str, hidden: str, bias: str) -> str:
        query = self._heads(self._linear(f"{prefix}attention.self.query", hidden), [0, 2, 1, 3])
        key = self._heads(self._linear(f"{prefix}attention.self.key", hidden), [0, 2, 3, 1])
        value = self._heads(self._linear(f"{prefix}attention.self.value", hidden), [0, 2, 1, 3])
        scale = self._number("scale", 1 / math.sqrt(_HIDDEN // _HEADS))
        scores = self._op("Add", [self._op("Mul", [self._op("MatMul", [query, key]), scale]), bias])
        context = self._op("MatMul", [self._op("Softmax", [scores], axis=-1), value])
        merged = self._op(
            "Reshape", [self._op("Transpose", [context], perm=[0, 2, 1, 3]), self._integers(0, 0, _HIDDEN)]
        )
        attended = self._linear(f"{prefix}attention.output.dense", merged)
        hidden = self._layer_norm(f"{prefix}attention.output.LayerNorm", self._op("Add", [attended, hidden]))
        wide = self._op("Gelu", [self._linear(f"{prefix}intermediate.dense", hidden)])
        narrow = self._linear(f"{prefix}output.dense", wide)
        return self._layer_norm(f"{prefix}output.LayerNorm", self._op("Add", [narrow, hidden]))

    def _pool(self, hidden: str) -> None:
        mask = self._op("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        column = self._op("Unsqueeze", [mask, self._integers(2)])
        total = self._op("ReduceSum", [self._op("Mul", [hidden, column]), self._integers(1)], keepdims=0)
        count = self._op("ReduceSum", [mask, self._integers(1)], keepdims=1)
        mean = self._op("Div", [total, count])
        self._nodes.append(helper.make_node("LpNormalization", [mean], ["sentence_embedding"], axis=-1, p=2))

    def _heads(self, hidden: str, order: list[int]) -> str:
        split = self._op("Reshape", [hidden, self._integers(0, 0, _HEADS, _HIDDEN // _HEADS)])
        return self._op("Transpose", [split], perm=order)

    def _linear(self, name: str, hidden: str) -> str:
        # Stored as (out, in); a matrix product wants (in, out).
        weight = self._constant(f"{name}.weight", self._weights[f"{name}.weight"].T)
        return self._op("Add", [self._op("MatMul", [hidden, weight]), self._weight(f"{name}.bias")])

    def _layer_norm(self, name: str, hidden: str) -> str:
        scale_and_bias = [self._weight(f"{name}.weight"), self._weight(f"{name}.bias")]
        return self._op("LayerNormalization", [hidden, *scale_and_bias], axis=-1, epsilon=_LAYER_NORM_EPSILON)

    def _op(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _weight(self, name: str) -> str:
        return self._constant(name, self._weights[name])

    def _integers(self, *values: int) -> str:
        return self._constant(f"integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _number(self, name: str, value: float) -> str:
        return self._constant(name, np.array(value, np.float32))

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name
