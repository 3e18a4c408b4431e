"""Write `minilm_reference.npz`: the vectors that sentence-transformers gives for `sentences.json`.

Run in a virtual environment of its own, where only sentence-transformers is installed:

    python -m venv reference && reference/bin/pip install sentence-transformers
    reference/bin/python tests/data/make_minilm_reference.py FOLDER

FOLDER holds the official `model.safetensors`, `tokenizer.json` and configuration files of all-MiniLM-L6-v2. The
versions that made the vectors are kept beside them.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers

HERE = Path(__file__).parent


def main() -> None:
    folder = Path(sys.argv[1])
    texts = json.loads((HERE / "sentences.json").read_text(encoding="utf-8"))
    reference = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    reference.max_seq_length = 256
    # One at a time: no padding takes part.
    vectors = np.stack([reference.encode(text, normalize_embeddings=True) for text in texts])
    about = {
        "sentence-transformers": sentence_transformers.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model.safetensors": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "max_seq_length": reference.max_seq_length,
    }
    np.savez_compressed(HERE / "minilm_reference.npz", vectors=vectors, about=json.dumps(about))


if __name__ == "__main__":
    main()
